package edge_test

import (
	"context"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
)

// TestRefusal: each reason has its limits and time to wait, and its place in the terms of
// google.rpc.
func TestRefusal(t *testing.T) {
	withLimiters(t, "all", func(t *testing.T, l limiters) {
		other := limittest.NewLimiter(t, limittest.NewStore(t, nil), ratelimit.PerHour("other", 1))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, c := range []struct {
			name   string
			ctx    context.Context
			claims []ratelimit.Claim
			blocks map[string]bool
			want   edge.Reason
			limits int
			wait   time.Duration
			code   uint32
		}{
			{"a limit three times", t.Context(), claims(l.one, l.one, l.one), nil,
				edge.Misconfigured, 0, 0, 13},
			{"exceeded", t.Context(), claims(l.one), nil, edge.Exceeded, 1, time.Minute, 8},
			{"block", t.Context(), claims(l.one), map[string]bool{"one": true},
				edge.Blocked, 1, time.Minute, 8},
			{"in flight", t.Context(), claims(l.calls), nil, edge.Exceeded, 1, time.Second, 8},
			{"never", t.Context(), []ratelimit.Claim{{Limiter: l.two, Key: "k", N: 3}}, nil,
				edge.Never, 1, 0, 8},
			{"too many", t.Context(),
				[]ratelimit.Claim{{Limiter: l.two, Key: "k", N: driver.MaxUnits + 1}}, nil,
				edge.Never, 2, 0, 8},
			{"no key", t.Context(), []ratelimit.Claim{{Limiter: l.one, N: 1}}, nil,
				edge.Unattributed, 0, 0, 3},
			{"ended", ended, claims(l.one), nil, edge.Ended, 0, 0, 13},
			{"two stores", t.Context(), claims(l.one, other), nil, edge.Misconfigured, 0, 0, 13},
		} {
			if c.want == edge.Exceeded || c.want == edge.Blocked {
				for range 2 { // take what there is
					var call edge.Call
					if err := call.Decide(t.Context(), c.claims, edge.Options{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			var call edge.Call
			err := call.Decide(c.ctx, c.claims, edge.Options{})
			if err == nil && call.Allowed() {
				t.Errorf("%s: allowed", c.name)
				continue
			}
			r := call.Refusal(c.ctx, c.claims, err, c.blocks)
			if r.Reason != c.want || len(r.Limits) != c.limits || r.RetryAfter != c.wait {
				t.Errorf("%s: got %+v", c.name, r)
			}
			s := r.Status(0)
			if s.Code != c.code || s.RetryDelay != c.wait || len(s.Violations) != c.limits {
				t.Errorf("%s: got the status %+v", c.name, s)
			}
			for _, v := range s.Violations {
				if c.want == edge.Blocked && (v.Max != 0 || v.Description != "blocked") {
					t.Errorf("%s: got the violation %+v", c.name, v)
				}
			}
		}
	})
}

// TestReasonNames: each reason has a name, and those with an ErrorInfo are found by it.
func TestReasonNames(t *testing.T) {
	seen := make(map[string]bool)
	for r := edge.Exceeded; r <= edge.Misconfigured; r++ {
		if name := r.String(); name == "" || name == "unknown" || seen[name] {
			t.Errorf("reason %d has the name %q", r, name)
		}
		seen[r.String()] = true
		want := r
		if r == edge.Never {
			want = edge.Exceeded
		}
		if r.Info() != "" && edge.ParseInfo(r.Info()) != want {
			t.Errorf("%q is found as %q", r.Info(), edge.ParseInfo(r.Info()))
		}
	}
	if r := edge.ParseInfo(""); r != 0 {
		t.Errorf("no info is found as %q", r)
	}
	if s := (edge.Misconfigured + 1).String(); s != "unknown" {
		t.Errorf("got %q", s)
	}
}

// TestSettleN: what a call has cost is recorded in place of what it holds.
func TestSettleN(t *testing.T) {
	for _, c := range []struct{ n, want int64 }{{-1, 2}, {0, 0}, {1, 1}, {5, 5}} {
		withLimiters(t, "", func(t *testing.T, _ limiters) {
			l := limittest.NewBudget(t, limittest.NewStore(t, nil),
				ratelimit.PerMinute("budget", 9))
			var call edge.Call
			err := call.Decide(t.Context(), []ratelimit.Claim{{Limiter: l, Key: "k", N: 2}},
				edge.Options{Settle: true})
			if err != nil || !call.Allowed() {
				t.Fatal(err, call.Results)
			}
			call.SettleN(t.Context(), c.n)
			if n := used(t, l); n != c.want {
				t.Errorf("%d: %d units are recorded, want %d", c.n, n, c.want)
			}
		})
	}
	withLimiters(t, "several", func(t *testing.T, l limiters) { // what they hold is kept
		var call edge.Call
		both := []ratelimit.Claim{{Limiter: l.budget, Key: "k", N: 1},
			{Limiter: l.budget, Key: "j", N: 1}}
		if err := call.Decide(t.Context(), both, edge.Options{Settle: true}); err != nil {
			t.Fatal(err)
		}
		call.SettleN(t.Context(), 0)
		if n := used(t, l.budget); n != 1 {
			t.Errorf("%d units are recorded, want 1", n)
		}
	})
}

// used returns how many units of the key k are used.
func used(t *testing.T, l *ratelimit.Limiter) int64 {
	t.Helper()
	res, err := l.Peek(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return res.Limit.Max - res.Remaining
}
