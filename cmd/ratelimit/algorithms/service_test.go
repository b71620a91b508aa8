package algorithms

import (
	"errors"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

func TestNew(t *testing.T) {
	limit := driver.PerHour("requests", 7)
	for _, name := range OfService() {
		a, err := New(name, limit, 0, 0)
		if err != nil {
			t.Fatal(name, err)
		}
		got := a.Limit()
		if got.Name != limit.Name || name != Block && got.Max != 7 || a.Validate() != nil {
			t.Errorf("%s has the limit %v", name, got)
		}
		held, err := New(name, limit, 20*time.Second, 0)
		if name == Block {
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("a block with holds: %v, want ErrInvalid", err)
			}
			continue
		}
		if h, ok := held.(driver.Holder); !ok || h.HoldTimeout() != 20*time.Second {
			t.Errorf("%s does not hold for 20s: %v, %v", name, held, err)
		}
	}
	if a, _ := New(Block, limit, 0, 0); a.Limit().Window != time.Hour {
		t.Errorf("the longest block is %v, want 1h", a.Limit().Window)
	}
	if a, _ := New(InFlight, limit, 0, 0); a.(driver.Holder).HoldTimeout() != time.Minute {
		t.Error("calls in flight are not held for a minute by default")
	}
	const day = 24 * time.Hour
	for _, b := range []struct{ window, debt, want time.Duration }{
		{time.Minute, time.Minute, time.Minute}, {day, 3 * day, 3 * day},
	} {
		limit := driver.Limit{Name: "requests", Max: 7, Window: b.window}
		a, err := New(Bucket, limit, 0, b.debt)
		if err != nil || a.(algorithm.Bucket).Debt() != b.want {
			t.Errorf("debt %v of a bucket of %v: %v, %v", b.debt, b.window, a, err)
		}
		held, err := New(Bucket, limit, time.Minute, b.debt)
		if err != nil || held.(algorithm.Held).Inside() != a {
			t.Errorf("inside a bucket with holds is %v, not %v; %v", held, a, err)
		}
	}
	wrong := []struct {
		name        string
		limit       driver.Limit
		holds, debt time.Duration
	}{
		{"Log", limit, 0, 0}, {"", limit, 0, 0}, {"gcra", limit, 0, 0},
		{"log", driver.Limit{Name: "requests", Window: time.Hour}, 0, 0},
		{"bucket", driver.Limit{Name: "two words", Max: 1, Window: time.Hour}, 0, 0},
		{"fixed", limit, time.Millisecond, 0}, {"counter", limit, -time.Second, 0},
		{InFlight, limit, 365 * day, 0}, {Bucket, limit, 0, time.Hour - 1},
		{Bucket, limit, 0, -time.Hour},
	}
	for _, w := range wrong {
		if a, err := New(w.name, w.limit, w.holds, w.debt); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("New(%q, %v, %v) = %v, %v, want ErrInvalid", w.name, w.limit, w.holds, a, err)
		}
	}
}
