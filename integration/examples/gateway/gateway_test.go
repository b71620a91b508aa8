package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/httplimit"
	"github.com/truewindow/ratelimit/internal/testkit/leak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(partsEnv); path != "" {
		streamUntilKilled(path)
	}
	leak.Main(m)
}

// gateways are two gateways on one store, in a bubble. All tenants have one plan, but that without
// a name has none.
type gateways struct {
	t     *testing.T
	store *memorystore.Store
	both  [2]*gateway
	plan  plan
}

func newGateways(t *testing.T, p plan, ask model) *gateways {
	t.Helper()
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	g := &gateways{t: t, store: store, plan: p}
	for i := range g.both {
		g.both[i] = &gateway{store: store, planOf: g.planOf, ask: ask}
	}
	return g
}

func (g *gateways) planOf(_ context.Context, tenant string) (plan, error) {
	if tenant == "" {
		return plan{}, &httplimit.StatusError{Status: http.StatusForbidden}
	}
	return g.plan, nil
}

// post sends a prompt to one of the gateways, and checks the status of the answer.
func (g *gateways) post(
	ctx context.Context, i int, tenant, prompt string, want int,
) *httptest.ResponseRecorder {
	g.t.Helper()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(prompt))
	r.Header.Set("X-Tenant", tenant)
	w := httptest.NewRecorder()
	g.both[i].ServeHTTP(w, r)
	if w.Code != want {
		g.t.Errorf("answered with %d %v %s, want %d", w.Code, w.Header(), w.Body, want)
	}
	return w
}

// left checks how many requests, tokens and calls are left.
func (g *gateways) left(tenant string, want plan) {
	g.t.Helper()
	l, err := g.both[1].limitsOf(g.plan)
	if err != nil {
		g.t.Fatal(err)
	}
	results, err := ratelimit.PeekAll(context.Background(),
		ratelimit.Claim{Limiter: l.requests, Key: tenant},
		ratelimit.Claim{Limiter: l.tokens, Key: tenant},
		ratelimit.Claim{Limiter: l.calls, Key: tenant})
	if err != nil {
		g.t.Fatal(err)
	}
	got := plan{results[0].Remaining, results[1].Remaining, results[2].Remaining}
	if got != want {
		g.t.Errorf("left are %+v, want %+v", got, want)
	}
}

// using returns a model whose answers use so many tokens, a hundred in each part.
func using(most int64) model {
	return func(
		_ context.Context, _ string, send func(string, int64) error,
	) (used int64, err error) {
		for used < most {
			used += 100
			if err := send("some", used); err != nil {
				return used, err
			}
		}
		return used, nil
	}
}

// failing returns a model that fails when it has used so many tokens.
func failing(used int64) model {
	return func(context.Context, string, func(string, int64) error) (int64, error) {
		return used, errors.New("planned: the model fails")
	}
}

// TestCharges checks what a call is charged, however it ends.
func TestCharges(t *testing.T) {
	const some, cut = "data: \"some\"\n\n", "event: cut\ndata: "
	for _, tt := range []struct {
		name   string
		ask    model
		status int
		ends   string // with what the answer ends
		left   int64  // of 2000 tokens
	}{
		{"less than held", using(300), 200, some, 1700},
		{"more than held", using(1900), 200, some, 100},
		{"all", using(2000), 200, some, 0},
		{"too many", using(9000), 200, cut + "\"used up\"\n\n", 0},
		{"no answer", failing(0), 502, "the model does not answer\n", 2000},
		{"a part", failing(700), 200, cut + "\"failed\"\n\n", 1300},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGateways(t, plan{10, 2000, 2}, tt.ask)
				w := g.post(t.Context(), 0, "acme", "a prompt", tt.status)
				if !strings.HasSuffix(w.Body.String(), tt.ends) {
					t.Errorf("answered %q, want an end of %q", w.Body, tt.ends)
				}
				g.left("acme", plan{9, tt.left, 2})
			})
		})
	}
}

// TestDisconnected checks that a call is charged although its client has gone.
func TestDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, disconnect := context.WithCancel(t.Context())
		g := newGateways(t, plan{10, 2000, 2}, func(
			ctx context.Context, _ string, _ func(string, int64) error) (int64, error) {
			disconnect()
			return 700, ctx.Err()
		})
		g.post(ctx, 0, "acme", "a prompt", 200)
		g.left("acme", plan{9, 1300, 2})
	})
}

// TestTogether checks that two gateways together admit what the plan says, what a refusal says, and
// that a larger plan holds at once.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		g := newGateways(t, plan{20, 50_000, 5}, func(
			context.Context, string, func(string, int64) error) (int64, error) {
			<-end
			return 120, nil
		})
		prompt := strings.Repeat("four", 20)
		var calls sync.WaitGroup
		for i := range 5 {
			calls.Go(func() { g.post(t.Context(), i%2, "acme", prompt, 200) })
		}
		synctest.Wait()
		g.left("acme", plan{15, 50_000 - 5*520, 0})
		for i := range g.both {
			w := g.post(t.Context(), i, "acme", prompt, 429)
			h := w.Header()
			const limits = `"requests";q=20;w=60, "tokens";q=50000;w=60;qu="tokens", ` +
				`"calls";q=5;qu="concurrent-requests"`
			if h.Get("Retry-After") != "1" || h.Get("RateLimit-Policy") != limits ||
				!strings.Contains(w.Body.String(), `"violated-policies":["calls"]`) {
				t.Errorf("refused with %v %s", h, w.Body)
			}
		}
		g.plan.Calls = 6
		calls.Go(func() { g.post(t.Context(), 0, "acme", prompt, 200) })
		synctest.Wait()
		g.left("acme", plan{14, 50_000 - 6*520, 0})
		close(end)
		calls.Wait()
		g.left("acme", plan{14, 50_000 - 6*120, 6})
	})
}

// TestRetryAfter checks that a client has to wait until the requests of the minute are over.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateways(t, plan{1, 2000, 2}, using(100))
		g.post(t.Context(), 0, "acme", "a prompt", 200)
		w := g.post(t.Context(), 1, "acme", "a prompt", 429)
		if got := w.Header().Get("Retry-After"); got != "60" {
			t.Errorf("Retry-After is %q", got)
		}
	})
}

// TestUndecided checks the answers to calls that the limits cannot decide.
func TestUndecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateways(t, plan{10, 2000, 2}, using(100))
		g.post(t.Context(), 0, "", "a prompt", 403)
		g.post(t.Context(), 0, "acme", strings.Repeat("four", 2001), 422)
		g.post(t.Context(), 0, "acme", strings.Repeat("long", 1<<18)+"er", 413)
		g.left("acme", plan{10, 2000, 2})
		g.plan.Calls = -1
		g.post(t.Context(), 0, "acme", "a prompt", 500)
		g.plan.Calls = 2
		g.store.Close()
		g.post(t.Context(), 0, "acme", "a prompt", 503)
	})
}

// TestStandIns checks the tenants and the model of the program.
func TestStandIns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateways(t, plan{3, 2000, 1}, repeat)
		for i := range g.both {
			g.both[i].planOf = planOf
		}
		for i := range 3 {
			w := g.post(t.Context(), i%2, "trial", "two words", 200)
			const want = "data: \"two\"\n\ndata: \"words\"\n\n"
			if got := w.Body.String(); got != want {
				t.Errorf("answered %q, want %q", got, want)
			}
		}
		g.post(t.Context(), 1, "trial", "two words", 429)
		g.post(t.Context(), 0, "nobody", "two words", 403)
		g.left("trial", plan{0, 2000 - 3*5, 1})
	})
}
