package upstream_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
	"github.com/truewindow/ratelimit/upstream"
)

// newLimiter returns the limiter of a narrower limit.
func newLimiter(
	t *testing.T, store ratelimit.Store, opts *upstream.Options, limit ratelimit.Limit,
) *ratelimit.Limiter {
	t.Helper()
	l, err := upstream.NewLimiter(store, opts, limit)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// searches returns an option Claims by which a search takes a unit of l.
func searches(l *ratelimit.Limiter) func(*http.Request) ([]ratelimit.Claim, error) {
	return func(r *http.Request) ([]ratelimit.Claim, error) {
		if r.URL.Path != "/search" {
			return nil, nil
		}
		return []ratelimit.Claim{{Limiter: l, Key: secret, N: 1}}, nil
	}
}

func search(ctx context.Context) *http.Request {
	return getFrom(ctx, "http://maps.example/search")
}

// TestClaims: two processes keep to a narrower limit of searches inside the quota of all requests.
// A refused request takes nothing under either, and both limits have the margin.
func TestClaims(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		base := newBase()
		transports := make([]*upstream.Transport, 2)
		for i := range transports {
			opts := upstream.Options{Base: base, Cost: secretKey, NoWait: true}
			opts.Claims = searches(newLimiter(t, store, &opts, ratelimit.PerMinute("search", 3)))
			transports[i] = newTransport(t, store, opts, ratelimit.PerHour("quota", 10))
		}
		var mu sync.Mutex
		refused := map[string]int{}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				_, err := transports[i%2].RoundTrip(search(t.Context()))
				var e *upstream.LimitError
				if errors.As(err, &e) {
					mu.Lock()
					refused[e.Limit]++
					mu.Unlock()
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if base.count() != 3 || refused["search"] != 17 {
			t.Errorf("%d searches were sent, want 3; refused by %v", base.count(), refused)
		}
		_, err := transports[0].RoundTrip(search(t.Context()))
		wantLimited(t, err, "search", false, time.Minute+upstream.DefaultMargin)
		for range 7 {
			wantStatus(t.Context(), t, transports[1], 200)
		}
		_, err = send(t.Context(), transports[0])
		wantLimited(t, err, "quota", false, time.Hour+upstream.DefaultMargin)
		time.Sleep(time.Minute + upstream.DefaultMargin)
		_, err = transports[0].RoundTrip(search(t.Context()))
		wantLimited(t, err, "quota", false, 59*time.Minute)
	})
}

// TestClaimsOfRegions: each region has a share of the quota, under a key of its own.
func TestClaimsOfRegions(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		base := newBase()
		share := newLimiter(t, store, nil, ratelimit.PerDay("share", 4))
		rt := newTransport(t, store, upstream.Options{Base: base, Cost: secretKey, NoWait: true,
			Claims: func(r *http.Request) ([]ratelimit.Claim, error) {
				return []ratelimit.Claim{{Limiter: share, Key: r.Header.Get("Name"), N: 1}}, nil
			}}, ratelimit.PerDay("quota", 10))
		sent := map[string]int{}
		for range 6 {
			for _, region := range []string{"eu", "us", "ap"} {
				r := get(t.Context())
				r.Header.Set("Name", region)
				var limited *upstream.LimitError
				switch _, err := rt.RoundTrip(r); {
				case err == nil:
					sent[region]++
				case !errors.As(err, &limited),
					limited.Limit != "quota" && limited.Limit != "share":
					t.Errorf("%s: %v, want a refusal by quota or share", region, err)
				}
			}
		}
		if sent["eu"] != 4 || sent["us"] != 3 || sent["ap"] != 3 {
			t.Errorf("sent %v, want 4, 3 and 3 of 10", sent)
		}
	})
}

// TestClaimsWait: a search waits for both limits, in order, and holds up no other request. The
// cool-down holds for both, and RoundTrip fails at once if it cannot be sent before its deadline.
func TestClaimsWait(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		base := newBase()
		opts := upstream.Options{Base: base, Cost: secretKey, Margin: noMargin}
		opts.Claims = searches(newLimiter(t, store, &opts, ratelimit.PerMinute("search", 1)))
		rt := newTransport(t, store, opts, ratelimit.PerSecond("quota", 2))
		var all sync.WaitGroup
		for _, name := range []string{"a", "b", "c"} {
			r := search(t.Context())
			r.Header.Set("Name", name)
			all.Go(func() {
				if _, err := rt.RoundTrip(r); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		wantStatus(t.Context(), t, rt, 200) // the searches b and c wait
		if time.Since(base.start) != 0 {
			t.Errorf("a request waited behind searches until %v", time.Since(base.start))
		}
		all.Wait()
		wantAt := []time.Duration{0, 0, time.Minute, 2 * time.Minute}
		if !slices.Equal(base.names, []string{"a", "", "b", "c"}) ||
			!slices.Equal(base.arrivals, wantAt) {
			t.Errorf("sent %q at %v", base.names, base.arrivals)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := rt.RoundTrip(search(ctx))
		if e := wantLimited(t, err, "search", false, time.Minute); ctx.Err() != nil ||
			!errors.Is(e, context.DeadlineExceeded) {
			t.Errorf("%v", e)
		}
		time.Sleep(time.Minute)
		base.say(429, "Retry-After", "90")
		res, err := rt.RoundTrip(search(t.Context()))
		if err != nil || res.StatusCode != 429 {
			t.Fatalf("%v, %v", res, err)
		}
		for _, r := range []*http.Request{search(ctx), get(t.Context())} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := rt.RoundTrip(r.WithContext(ctx))
			wantLimited(t, err, "quota.cooldown", true, 90*time.Second)
			cancel()
		}
	})
}

// TestClaimsErrors: a request whose claims are wrong is not sent, and its error says why.
func TestClaimsErrors(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		elsewhere, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer elsewhere.Close()
		limit := ratelimit.PerMinute("search", 3)
		l, other := newLimiter(t, store, nil, limit), newLimiter(t, elsewhere, nil, limit)
		calls := limittest.NewInFlight(t, store, 1)
		bad := errors.New("no region")
		for i, tt := range []struct {
			claims []ratelimit.Claim
			err    error
			want   error
		}{
			{nil, bad, bad},
			{[]ratelimit.Claim{{}}, nil, ratelimit.ErrInvalid},
			{[]ratelimit.Claim{{Limiter: l, N: 1}}, nil, ratelimit.ErrInvalid},
			{[]ratelimit.Claim{{Limiter: l, Key: secret, N: -1}}, nil, ratelimit.ErrInvalid},
			{[]ratelimit.Claim{{Limiter: l, Key: secret, N: 4}}, nil, ratelimit.ErrExceedsLimit},
			{[]ratelimit.Claim{{Limiter: other, Key: secret, N: 1}}, nil,
				ratelimit.ErrInvalid},
			{[]ratelimit.Claim{{Limiter: l, Key: secret, N: 1}, {Limiter: l, Key: secret, N: 1}},
				nil, ratelimit.ErrInvalid},
			{[]ratelimit.Claim{{Limiter: calls, Key: secret, N: 1}}, nil, ratelimit.ErrInvalid},
		} {
			for _, noWait := range []bool{false, true} {
				base := newBase()
				rt := newTransport(t, store, upstream.Options{Base: base, Cost: secretKey,
					NoWait: noWait, Claims: func(*http.Request) ([]ratelimit.Claim, error) {
						return tt.claims, tt.err
					}}, ratelimit.PerHour("quota", 10))
				if _, err := send(t.Context(), rt); !errors.Is(err, tt.want) || base.count() != 0 {
					t.Errorf("case %d, NoWait %v: %v, want %v", i, noWait, err, tt.want)
				}
			}
		}
		for _, limits := range [][]ratelimit.Limit{nil, {{}}} {
			if _, err := upstream.NewLimiter(store, nil, limits...); !errors.Is(err,
				ratelimit.ErrInvalid) {
				t.Errorf("NewLimiter of %v: %v, want ErrInvalid", limits, err)
			}
		}
	})
}
