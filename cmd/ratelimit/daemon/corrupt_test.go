package daemon

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
	for limit, path := range map[string]string{
		"tokens": "/v1/reserve", "calls": "/v1/reserve", "blocked": "/v1/take-all",
	} {
		s := newScene(t)
		s.post("/v1/force", one("requests", `"n":1`))
		store := &corrupt{s.store, map[string]bool{limit: true}}
		s.api = budgetAPI(t, budgetFlags(), store)
		_, p := checkProblem(t, s.api, request(http.MethodPost, path, of(limit)), 503)
		if got, _ := p["detail"].(string); !strings.Contains(got, "POST /v1/reset with the limit") {
			t.Errorf("%s: %q", limit, got)
		}
		if status, _, answer := s.post("/v1/reset", one(limit, "")); status != 204 {
			t.Errorf("%s: %d %v", limit, status, answer)
		}
		if status, _, answer := s.post(path, of(limit)); status != 200 {
			t.Errorf("%s after the reset: %d %v", limit, status, answer)
		}
		s.checkLeft("requests=2")
	}
}

// TestResetOfOneLimit: a request that does not name a limit of the daemon resets nothing.
func TestResetOfOneLimit(t *testing.T) {
	s := newScene(t)
	s.post("/v1/acquire", one("calls", ""))
	s.post("/v1/force", one("tokens", `"n":5`))
	checkTyped(t, s.api, request(http.MethodPost, "/v1/reset", one("secret-key", "")), 422,
		"ErrUnknownLimit")
	for _, body := range []string{
		one("calls", `"n":1`), `{"limit":"calls"}`, `{"limit":null,"key":"secret-key"}`,
		`{"limit":1,"key":"secret-key"}`,
	} {
		checkProblem(t, s.api, request(http.MethodPost, "/v1/reset", body), 400)
	}
	s.checkLeft("calls=1 tokens=95")
	s.post("/v1/reset", one("calls", ""))
	s.checkLeft("calls=2 tokens=95")
}
