package stores

import (
	"errors"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/faultproxy"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/layer"
)

// budgetOutage is a store on a server behind a proxy, and a store without a proxy.
type budgetOutage struct {
	store, calm ratelimit.Store
	proxy       *faultproxy.Proxy
	key         string
}

var outageTokens = ratelimit.PerHour("tokens", 1000)

func outageBudget(limit ratelimit.Limit) ratelimit.Algorithm {
	return algorithm.Budget(algorithm.SlidingLog(limit))
}

func newBudgetOutage(t *testing.T, lib clients.Library, tgt *servers.Target) *budgetOutage {
	t.Helper()
	s := &budgetOutage{
		calm: clients.CalmStore(t, tgt, nil), proxy: servers.Proxy(t, tgt.Addrs[0]),
		key: servers.FreshKey(t),
	}
	s.store = lib.Client(t, clients.Dialing{Addrs: []string{s.proxy.Addr()}}).
		NewStore(t, &serverstore.Options{Timeout: clients.Patient})
	return s
}

func (s *budgetOutage) limiter(t *testing.T, policy ratelimit.Policy) *ratelimit.Limiter {
	t.Helper()
	l, err := ratelimit.New(s.store, outageBudget(outageTokens))
	if err != nil {
		t.Fatal(err)
	}
	return l.WithPolicy(policy)
}

// reserve reserves 40 units.
func (s *budgetOutage) reserve(
	t *testing.T, l *ratelimit.Limiter, source ratelimit.Source,
) *ratelimit.Reservation {
	t.Helper()
	r, err := l.Reserve(t.Context(), s.key, 40)
	if err != nil || !r.Allowed() || r.Result().Source != source {
		t.Fatalf("got %+v, %v; want 40 units from %v", r, err, source)
	}
	return r
}

// commit commits r, and retries until it is settled, on an available server.
func (s *budgetOutage) commit(t *testing.T, r *ratelimit.Reservation, used int64) {
	t.Helper()
	servers.Within(t, func() bool { return r.Commit(t.Context(), used) == nil },
		"the reservation is not settled")
}

// heal makes the server available again and returns when it decides.
func (s *budgetOutage) heal(t *testing.T) {
	t.Helper()
	s.proxy.Heal()
	clients.Decided(t, s.store, clients.Take(servers.FreshKey(t)))
}

// commitUnavailable commits r while the server is unavailable, and expects an error.
func (s *budgetOutage) commitUnavailable(t *testing.T, r *ratelimit.Reservation, used int64) {
	t.Helper()
	if err := r.Commit(t.Context(), used); !errors.Is(err, ratelimit.ErrUnavailable) {
		t.Errorf("Commit: got %v, want %v", err, ratelimit.ErrUnavailable)
	}
}

// wantCharged checks how many units are held or recorded.
func (s *budgetOutage) wantCharged(t *testing.T, units int64) {
	t.Helper()
	limit := outageTokens
	limit.Max = driver.MaxUnits
	all, err := ratelimit.New(s.calm, outageBudget(limit))
	if err != nil {
		t.Fatal(err)
	}
	want(t, all, s.key, units)
}

// TestBudgetsUnavailable: what a reservation charges if it is made or settled while the server is
// unavailable, under FailClosed, under FailOpen and with layer.Degraded.
func TestBudgetsUnavailable(t *testing.T) {
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		tgt := &servers.Target{Addrs: []string{servers.Start(t, image).Addr}}
		clients.Each(t, func(t *testing.T, lib clients.Library) {
			t.Run("closed", func(t *testing.T) { outageClosed(t, newBudgetOutage(t, lib, tgt)) })
			t.Run("open", func(t *testing.T) { outageOpen(t, newBudgetOutage(t, lib, tgt)) })
			t.Run("degraded", func(t *testing.T) {
				outageDegraded(t, newBudgetOutage(t, lib, tgt))
			})
		})
	})
}

// outageClosed: nothing is reserved, and earlier reservations are settled when the server recovers.
func outageClosed(t *testing.T, s *budgetOutage) {
	tokens := s.limiter(t, ratelimit.FailClosed)
	less, more := s.reserve(t, tokens, ratelimit.SourceStore),
		s.reserve(t, tokens, ratelimit.SourceStore)
	s.proxy.Set(faultproxy.Fault{Kind: faultproxy.CutBefore})
	_, err := tokens.Reserve(t.Context(), s.key, 40)
	if !errors.Is(err, ratelimit.ErrUnavailable) {
		t.Errorf("Reserve: got %v, want ErrUnavailable", err)
	}
	s.commitUnavailable(t, less, 10)
	s.commitUnavailable(t, more, 45)
	s.wantCharged(t, 80)
	s.heal(t)
	s.commit(t, less, 10)
	s.commit(t, more, 45)
	s.wantCharged(t, 10+45)
}

// outageOpen: what the policy admits is charged if it is settled when the server has recovered,
// unless it may have been sent and was not: then Commit says so.
func outageOpen(t *testing.T, s *budgetOutage) {
	tokens := s.limiter(t, ratelimit.FailOpen)
	s.proxy.Set(faultproxy.Fault{Kind: faultproxy.CutBefore})
	used, canceled := s.reserve(t, tokens, ratelimit.SourceOpen),
		s.reserve(t, tokens, ratelimit.SourceOpen)
	s.wantCharged(t, 0)
	s.heal(t)
	if err := canceled.Cancel(t.Context()); err != nil {
		t.Errorf("Cancel: got %v, want no error", err)
	}
	err := used.Commit(t.Context(), 10)
	switch {
	case errors.Is(err, ratelimit.ErrNotHeld):
		s.wantCharged(t, 0)
	case err != nil:
		t.Error(err)
	default:
		s.wantCharged(t, 10)
	}
}

// outageDegraded: what is settled while the server is unavailable is recorded later as the units
// that were used, whether the server held it or not.
func outageDegraded(t *testing.T, s *budgetOutage) {
	degraded, err := layer.NewDegraded(s.store, &layer.DegradedOptions{Instances: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer degraded.Close()
	s.store = degraded
	tokens := s.limiter(t, ratelimit.FailClosed)
	before := s.reserve(t, tokens, ratelimit.SourceStore)
	s.proxy.Set(faultproxy.Fault{Kind: faultproxy.CutBefore})
	less := s.reserve(t, tokens, ratelimit.SourceLocal)
	more := s.reserve(t, tokens, ratelimit.SourceLocal)
	late := s.reserve(t, tokens, ratelimit.SourceLocal)
	if err := errors.Join(less.Commit(t.Context(), 10), more.Commit(t.Context(), 45),
		before.Commit(t.Context(), 5)); err != nil {
		t.Error(err)
	}
	s.wantCharged(t, 40)
	s.heal(t)
	s.commit(t, late, 10)
	servers.Within(t, func() bool {
		stats := degraded.Stats()
		return stats.Pending == 0 && stats.Holds == 0
	}, "what was settled locally was not recorded")
	s.wantCharged(t, 10+45+5+10)
}
