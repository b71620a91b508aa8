package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// corrupt is a store in which the states of limits are corrupt until they are reset.
type corrupt struct {
	ratelimit.Store
	limits map[string]bool
}

func (s *corrupt) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	name := d.Algorithm.Limit().Name
	if d.Op == driver.OpReset {
		delete(s.limits, name)
	}
	if s.limits[name] {
		return ratelimit.Result{}, fmt.Errorf("%w: %w", ratelimit.ErrUnavailable,
			driver.ErrCorruptState)
	}
	return s.Store.Take(ctx, d)
}

func (s *corrupt) TakeAll(
	ctx context.Context, ds []driver.Demand, out []ratelimit.Result,
) (err error) {
	for i := range ds {
		if _, err := s.Take(ctx, ds[i]); err != nil {
			return err
		}
	}
	return nil
}

// TestResetCorrupt: the answer to a corrupt state names a request that mends it, for limits of
// every kind, and only that limit of the key is reset.
func TestResetCorrupt(t *testing.T) {
	for _, limit := range []string{"tokens", "calls", "blocked"} {
		s := newScene(t)
		s.post("/v1/force", one("requests", `"n":1`))
		store := &corrupt{s.store, map[string]bool{limit: true}}
		s.api = flagsAPI(t, testFlags(), store)
		_, p := checkProblem(t, s.api, request(http.MethodPost, "/v1/decide", hold(limit)), 503)
		if got, _ := p["detail"].(string); !strings.Contains(got, "POST /v1/reset with the limit") {
			t.Errorf("%s: %q", limit, got)
		}
		if status, _, answer := s.post("/v1/reset", one(limit, "")); status != 204 {
			t.Errorf("%s: %d %v", limit, status, answer)
		}
		if status, _, answer := s.post("/v1/decide", hold(limit)); status != 200 {
			t.Errorf("%s after the reset: %d %v", limit, status, answer)
		}
		s.checkLeft("requests=2")
	}
}

// TestResetOfOneLimit: a reset that names a limit resets no other.
func TestResetOfOneLimit(t *testing.T) {
	newScene(t).play(
		step{"/v1/decide", hold("calls"), 200, "", "", 0},
		step{"/v1/force", one("tokens", `"n":5`), 200, "", "calls=1 tokens=95", 0},
		step{"/v1/reset", one("calls", ""), 204, "", "calls=2 tokens=95", 0},
	)
}
