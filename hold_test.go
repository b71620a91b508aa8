package ratelimit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// holdCounts are the holds under the limits tokens and calls that are open, and how many were late
// and lost.
type holdCounts struct{ open, late, lost [2]int }

// holdWatch sums what an observer gets.
type holdWatch struct {
	mu     sync.Mutex
	counts holdCounts
}

func limitIndex(l ratelimit.Limit) int { return map[string]int{"tokens": 0, "calls": 1}[l.Name] }

func (w *holdWatch) observe(_ context.Context, o ratelimit.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, change := range o.Open {
		at := limitIndex(o.Limits[i])
		w.counts.open[at] += change
		switch {
		case errors.Is(o.Err, ratelimit.ErrNotHeld):
			w.counts.lost[at]++
		case errors.Is(o.Err, context.DeadlineExceeded):
			w.counts.late[at]++
		case o.Err != nil:
			panic(o.Err)
		}
	}
}

// A heldCall is a reservation in the model, with a hold of tokens and one of calls.
type heldCall struct {
	key    string
	r      *ratelimit.Reservation // nil if there is only its token
	text   string
	commit int64 // the units of a Commit that has failed
	unheld bool  // the policy has admitted it
	holds  [2]heldUnits
}

// heldUnits is a hold in the model.
type heldUnits struct {
	exists  bool // in the store
	open    bool // as this process knows
	stale   bool // its time-out is over
	unknown bool // the answer to a settlement was lost
}

// met is after a call that has held or renewed the hold at i, if it exists.
func (c *holdCounts) met(i int, h *heldUnits) {
	if !h.exists {
		c.end(i, h, !h.unknown)
		return
	}
	if h.open && h.stale {
		c.late[i]++
	}
	if !h.open {
		c.open[i]++
	}
	*h = heldUnits{exists: true, open: true}
}

// settled is after a settlement of the hold at i with n units.
func (c *holdCounts) settled(i int, h *heldUnits, n int64) {
	missing := n > 0 && !h.exists
	if !missing && h.open && h.stale {
		c.late[i]++
	}
	c.end(i, h, missing && !h.unknown)
	h.exists = false
}

func (c *holdCounts) end(i int, h *heldUnits, lost bool) {
	if h.open {
		c.open[i]--
	}
	if h.open && lost {
		c.lost[i]++
	}
	h.open = false
}

// TestOpenHolds: the changes of holds that observers get add up to a plain count, through random
// histories of reservations that are refused, extended, settled, passed on as tokens, resumed,
// reset, dropped and renewed after outages, on a store that fails and loses answers.
func TestOpenHolds(t *testing.T) {
	var ended holdCounts
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			h := newHoldHistory(t, seed)
			for range 150 {
				h.step()
			}
			h.finish()
			for i := range 2 {
				ended.late[i] += h.want.late[i]
				ended.lost[i] += h.want.lost[i]
			}
		})
	}
	for i := range 2 {
		if ended.late[i] == 0 || ended.lost[i] == 0 {
			t.Errorf("the histories have no late or no lost hold: %+v", ended)
		}
	}
}

type holdHistory struct {
	*testing.T
	rnd           *rand.Rand
	store         *mapStore
	watch         holdWatch
	want          holdCounts
	tokens, calls *ratelimit.Limiter
	live          []*heldCall
}

func newHoldHistory(t *testing.T, seed uint64) *holdHistory {
	h := &holdHistory{T: t, rnd: rand.New(rand.NewPCG(seed, 1)), store: new(mapStore)}
	h.tokens = newBudgets(t, h.store, ratelimit.PerMinute("tokens", 40)).
		WithObserver(h.watch.observe)
	h.calls = newCalls(t, h.store, 6).
		WithObserver(h.watch.observe)
	return h
}

// set makes the store answer with err, and decide all the same or not.
func (s *mapStore) set(err error, decides bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.decides = err, decides
}

// pass lets time pass until all reservations are renewed.
func (h *holdHistory) pass() {
	time.Sleep(25 * time.Second)
	for _, c := range h.live {
		for i := range c.holds {
			if c.r != nil && !c.unheld {
				h.want.met(i, &c.holds[i])
			}
		}
	}
}

// outage lets time pass until all holds have timed out, and nothing is repeated any more. It does
// not end at the time of a renewal.
func (h *holdHistory) outage() {
	h.store.set(ratelimit.ErrUnavailable, false)
	time.Sleep(2*time.Minute + 7*time.Millisecond)
	h.store.set(nil, false)
	for _, c := range h.live {
		c.holds[0].stale, c.holds[1].stale = true, true
	}
}

// check compares the counts after an operation.
func (h *holdHistory) check(did string) {
	h.Helper()
	synctest.Wait()
	h.watch.mu.Lock()
	defer h.watch.mu.Unlock()
	if got := h.watch.counts; got != h.want {
		h.Fatalf("after %s: %+v, want %+v", did, got, h.want)
	}
}

func (h *holdHistory) step() {
	if len(h.live) == 0 || h.rnd.IntN(3) == 0 {
		h.reserve()
		return
	}
	at := h.rnd.IntN(len(h.live))
	c := h.live[at]
	gone := func() { h.live = slices.Delete(h.live, at, at+1) }
	if c.r == nil {
		r, err := ratelimit.Resume(c.text, h.tokens, h.calls)
		noErr(h, err)
		c.r, c.text = r, ""
		h.check("Resume")
		return
	}
	cause, decides := ratelimit.ErrUnavailable, false
	if h.rnd.IntN(2) == 0 {
		cause, decides = ratelimit.ErrOutcomeUnknown, h.rnd.IntN(2) == 0
	}
	// lost sets what the answer that was lost has changed.
	lost := func(holds []heldUnits) {
		for i := range holds {
			if cause == ratelimit.ErrOutcomeUnknown {
				holds[i].unknown = true
				holds[i].exists = holds[i].exists && !decides
			}
		}
	}
	switch h.rnd.IntN(12) {
	case 0, 1:
		_ = c.r.Commit(h.Context(), 3)
		_ = c.r.Commit(h.Context(), 3)
		c.commit = 3
		h.settled(c)
		gone()
		h.check("Commit")
	case 2:
		_ = c.r.Cancel(h.Context())
		h.settled(c)
		gone()
		h.check("Cancel")
	case 3:
		h.store.set(cause, decides)
		_ = c.r.Commit(h.Context(), 3)
		h.store.set(nil, false)
		c.commit = 3
		if c.unheld && cause == ratelimit.ErrOutcomeUnknown {
			gone() // it is never forced again
		} else {
			lost(c.holds[:])
		}
		h.check("a Commit that fails")
	case 4:
		away := h.rnd.IntN(3) == 0
		if away {
			h.store.set(ratelimit.ErrUnavailable, false)
		}
		results, err := c.r.Extend(h.Context(), 1)
		h.store.set(nil, false)
		if !away {
			noErr(h, err)
		}
		if !away && results[ratelimit.Binding(results)].Allowed {
			for i := range c.holds[:len(results)] {
				c.holds[i].exists = true
				h.want.met(i, &c.holds[i])
			}
			c.unheld = false
		}
		h.check("Extend")
	case 5, 6:
		text, err := c.r.Token()
		if c.r.Result().Source == ratelimit.SourceOpen {
			wantErr(h.T, err, ratelimit.ErrInvalid)
			return
		}
		noErr(h, err)
		for i := range c.holds {
			h.want.end(i, &c.holds[i], false)
		}
		*c = heldCall{key: c.key, text: text, holds: c.holds}
		h.check("Token")
	case 7:
		noErr(h, h.tokens.Reset(h.Context(), c.key))
		for _, c := range h.live {
			c.holds[0].exists = c.holds[0].exists && c.key != h.live[at].key
		}
		h.check("Reset")
	case 8:
		gone()
		for i := range c.holds {
			h.want.end(i, &c.holds[i], c.holds[i].open)
		}
		c.r = nil
		for range 3 {
			runtime.GC()
		}
		h.pass()
		h.check("a drop")
	case 9:
		h.outage()
		h.check("an outage")
	case 10:
		h.store.set(cause, decides)
		_ = c.r.Cancel(h.Context())
		h.store.set(nil, false)
		gone()
		if lost(c.holds[:]); h.rnd.IntN(2) == 0 {
			h.pass()
			h.settled(c)
		} else {
			h.outage()
			h.want.end(0, &c.holds[0], true)
			h.want.end(1, &c.holds[1], true)
		}
		h.check("a Cancel that fails")
	default:
		h.pass()
		h.check("renewals")
	}
}

// settled is after a Commit, or a Cancel.
func (h *holdHistory) settled(c *heldCall) {
	if !c.unheld {
		h.want.settled(0, &c.holds[0], c.commit)
		h.want.settled(1, &c.holds[1], 0)
	}
}

// finish settles all, and sees that nothing is open.
func (h *holdHistory) finish() {
	for _, c := range h.live {
		if c.r != nil {
			_ = c.r.Commit(h.Context(), 3)
			c.commit = 3
			h.settled(c)
		}
	}
	h.check("all")
	if h.want.open != [2]int{} {
		h.Errorf("open at the end: %+v", h.want)
	}
	for _, l := range []*ratelimit.Limiter{h.tokens, h.calls} {
		if held := ratelimit.HeldHere(l); len(held) > 0 {
			h.Errorf("waits would count as held under %v: %v", l.Limits(), held)
		}
	}
}

func (h *holdHistory) reserve() {
	c := &heldCall{key: []string{"a", "b"}[h.rnd.IntN(2)]}
	claims := []ratelimit.Claim{
		{Limiter: h.tokens, Key: c.key, N: 5}, {Limiter: h.calls, Key: c.key, N: 1}}
	mode := h.rnd.IntN(8)
	if mode < 3 {
		for i := range claims {
			claims[i].Limiter = claims[i].Limiter.WithPolicy(ratelimit.FailOpen)
		}
	}
	free, err := ratelimit.PeekAll(h.Context(), claims...)
	noErr(h, err)
	decides := h.rnd.IntN(2) == 0
	switch mode {
	case 0, 3:
		h.store.set(ratelimit.ErrUnavailable, false)
	case 1:
		h.store.set(ratelimit.ErrOutcomeUnknown, decides)
	}
	r, err := ratelimit.ReserveAll(h.Context(), claims...)
	h.store.set(nil, false)
	if c.r = r; err == nil && r.Allowed() {
		h.live = append(h.live, c)
		c.unheld = mode == 0
		for i := range c.holds {
			if u := &c.holds[i]; r.Result().Source == ratelimit.SourceOpen {
				u.exists = mode == 1 && decides && free[ratelimit.Binding(free)].Allowed
			} else {
				u.exists = true
				h.want.met(i, u)
			}
		}
	}
	h.check("Reserve")
}

// TestUnitsNotCounted: calls that wait do not count units which the store may not hold any more,
// although the reservation goes on.
func TestUnitsNotCounted(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lose  func(*mapStore, *ratelimit.Reservation, *ratelimit.Limiter)
		calls int // of the store in the next ten minutes
	}{
		{"a part is reset elsewhere", func(
			store *mapStore, _ *ratelimit.Reservation, calls *ratelimit.Limiter,
		) {
			elsewhere, err := ratelimit.New(store, calls.Algorithms()...)
			noErr(t, err)
			noErr(t, elsewhere.Reset(context.Background(), "k"))
			time.Sleep(25 * time.Second)
		}, 30},
		{"the answer to a Commit is lost", func(
			store *mapStore, r *ratelimit.Reservation, _ *ratelimit.Limiter,
		) {
			store.set(ratelimit.ErrOutcomeUnknown, false)
			wantErr(t, r.Commit(context.Background(), 1), ratelimit.ErrOutcomeUnknown)
			store.set(nil, false)
		}, 30},
		{"the store is closed", func(
			store *mapStore, _ *ratelimit.Reservation, _ *ratelimit.Limiter,
		) {
			store.set(driver.ErrClosed, false)
			time.Sleep(25 * time.Second)
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &mapStore{}
				calls := newCalls(t, store, 1)
				tokens := newBudgets(t, store, ratelimit.PerHour("tokens", 100))
				r := mustReserve(t, claim(calls, 1), claim(tokens, 10))
				if held := ratelimit.HeldHere(calls)["k"]; held != 1 {
					t.Errorf("%d units are counted at first, want 1", held)
				}
				tt.lose(store, r, calls)
				if held := ratelimit.HeldHere(calls); len(held) > 0 {
					t.Errorf("units are counted: %v", held)
				}
				store.made()
				time.Sleep(10 * time.Minute)
				if n := len(store.made()); n < tt.calls || n > tt.calls+tt.calls/10 {
					t.Errorf("%d renewals, want about %d", n, tt.calls)
				}
				store.set(nil, false)
				noErr(t, r.Cancel(t.Context()))
			})
		})
	}
}
