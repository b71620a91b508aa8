package server

import (
	"context"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/backend/internal/denycache"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// refusing is a client of a server that refuses every demand for an hour.
type refusing struct {
	Client
	sent *int
}

func (refusing) Cluster() bool { return false }

func (c refusing) Run(_ context.Context, cmd *Command) {
	cmd.Gate.Open()
	*c.sent++
	reply := []byte{1 << 4, 0, 0, 0, 0, 0} // refused, none remaining
	for range 2 {                          // RetryAfter and ResetAfter
		us := time.Hour.Microseconds()
		for shift := 48; shift >= 0; shift -= 8 {
			reply = append(reply, byte(us>>shift))
		}
	}
	cmd.Reply = string(append(reply, 0, 0, 0, 0, 0, 0, 0))
}

// RunTracked refuses as Run does, and sends nothing.
func (c refusing) RunTracked(ctx context.Context, cmd *Command) {
	sent := *c.sent
	c.Run(ctx, cmd)
	*c.sent = sent
}

// TestTakeAllOfOne: a TakeAll of one demand is a Take. Its refusal is cached for its own key, and
// later answers a Take.
func TestTakeAllOfOne(t *testing.T) {
	sent := 0
	s, err := New(refusing{sent: &sent}, Words{}, serverstore.Options{
		Timeout: time.Minute, Now: func() int64 { return time.Now().UnixMicro() },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.UseCache(denycache.New(serverstore.OpenOptions{}))
	for i, key := range []string{"one", "two"} {
		out := make([]driver.Result, 1)
		err := s.TakeAll(t.Context(), []driver.Demand{demandOn(key, 1)}, out)
		if err != nil || out[0].Allowed || out[0].RetryAfter != time.Hour {
			t.Fatalf("%+v, %v", out[0], err)
		}
		if n := s.Stats().Cache.Entries; n != int64(i+1) {
			t.Errorf("%d refusals are cached, want %d", n, i+1)
		}
	}
	for _, key := range []string{"one", "two"} {
		res, err := s.Take(t.Context(), demandOn(key, 1))
		if err != nil || res.Source != driver.SourceCache {
			t.Errorf("%+v, %v, want a cached refusal", res, err)
		}
	}
	if sent != 2 {
		t.Errorf("%d requests, want 2", sent)
	}
}
