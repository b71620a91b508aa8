package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// holdFaults are the faults that are played under reservations.
func holdFaults() (all []breakage) {
	for _, name := range []string{
		resetBefore, answersReset, "all connections reset, again and again",
		"network frozen, nothing lost", "half-open: requests lost", "half-open: answers lost",
		"SIGSTOP", "SIGKILL, restart with an append-only file",
		"SIGKILL, restart without persistence", "FLUSHALL, again and again",
	} {
		b := breakages[slices.IndexFunc(breakages,
			func(b breakage) bool { return b.name == name })]
		all = append(all, b)
		if name == "SIGSTOP" {
			b.name, b.lasts = "SIGSTOP for longer than the time-out", holdsLast+time.Second
			all = append(all, b)
		}
	}
	return all
}

func holdFaultNames() (names []string) {
	for _, b := range holdFaults() {
		names = append(names, b.name)
	}
	return names
}

const (
	holdsLast     = 3 * time.Second
	heldUnits     = 3
	usedUnits     = 2
	heldInAdvance = 20
)

func holdBudget(t testing.TB, store ratelimit.Store) *ratelimit.Limiter {
	t.Helper()
	l, err := ratelimit.New(store, algorithm.Budget(algorithm.SlidingLog(
		ratelimit.PerDay("day", driver.MaxUnits))).WithTimeout(holdsLast))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A holder is a caller that reserves, renews and commits in turn, and commits each reservation a
// second time, as another process would by its token.
type holder struct {
	*caller
	budget *ratelimit.Limiter
	turns  int
	open   []*ratelimit.Reservation // to be committed
	again  []string                 // tokens of reservations that are settled
	texts  map[*ratelimit.Reservation]string

	of       [3]got // Reserve, Renew and Commit
	used     int64
	lost     int // reservations that the server had lost
	repeated int // settlements of the second time
	wrong    error
}

const (
	reserves = iota
	renews
	commits
)

func (h *holder) next() error {
	phase, turn := h.phase.Load(), h.turns%3
	h.turns++
	var err error
	switch {
	case turn == reserves:
		err = h.reserve(h.budget)
	case len(h.open) == 0:
		return nil
	case turn == renews:
		err = h.open[len(h.open)-1].Renew(context.Background(), 0)
	case h.turns%2 == 0 && len(h.again) > 0:
		err = h.repeat()
	default:
		err = h.commit()
	}
	if errors.Is(err, ratelimit.ErrNotHeld) {
		err = nil // an answer
	}
	if phase == phaseBroken && h.phase.Load() == phaseBroken {
		h.of[turn].count(err)
	}
	return err
}

func (h *holder) reserve(budget *ratelimit.Limiter) error {
	r, err := budget.Reserve(context.Background(), h.key, heldUnits)
	if err != nil {
		return err
	}
	text, err := r.Token()
	if err == nil {
		r, err = ratelimit.Resume(text, h.budget)
	}
	if err != nil {
		h.wrong = err
		return nil
	}
	h.texts[r] = text
	h.open = append(h.open, r)
	return nil
}

// commit commits the oldest reservation, and keeps it if that fails.
func (h *holder) commit() error {
	r := h.open[0]
	err := r.Commit(context.Background(), usedUnits)
	switch {
	case errors.Is(err, ratelimit.ErrNotHeld):
		h.lost++
	case err != nil:
		return err
	default:
		h.used += usedUnits
		h.again = append(h.again, h.texts[r])
	}
	h.open = h.open[1:]
	return nil
}

// repeat settles a reservation that is settled.
func (h *holder) repeat() error {
	r, err := ratelimit.Resume(h.again[0], h.budget)
	if err != nil {
		h.wrong = err
		return nil
	}
	err = r.Commit(context.Background(), usedUnits)
	switch {
	case errors.Is(err, ratelimit.ErrUnavailable):
		return err
	case !errors.Is(err, ratelimit.ErrNotHeld):
		h.wrong = fmt.Errorf("the second settlement of a reservation: %w", err)
	}
	h.again = h.again[1:]
	h.repeated++
	return nil
}

// TestFaultsHolds plays faults under reservations. What was used is charged, once, apart from what
// the server loses, and nothing is held in the end.
func TestFaultsHolds(t *testing.T) {
	t.Parallel() // it mostly waits
	for i, image := range faultImages() {
		t.Run(strings.ReplaceAll(image, "/", "-"), func(t *testing.T) {
			t.Parallel()
			stages := newStages(t, image)
			for j, b := range holdFaults() {
				if depth.Full || j%len(faultImages()) == i {
					t.Run(b.name, func(t *testing.T) {
						inTime(t, func(late *lateness) {
							holdUp(t, b, newScene(t, stages(b.durable), b.network), late)
						})
					})
				}
			}
		})
	}
}

func holdUp(t *testing.T, b breakage, s *scene, late *lateness) {
	holders := make([][]*holder, len(s.witnesses))
	for i, w := range s.witnesses {
		for _, c := range w.callers {
			h := &holder{caller: c, budget: holdBudget(t, c.store),
				texts: make(map[*ratelimit.Reservation]string)}
			c.key, c.ask = fmt.Sprint(c.key, "-", len(holders[i])), h.next
			inAdvance := holdBudget(t, w.patient)
			for range heldInAdvance {
				if err := h.reserve(inAdvance); err != nil {
					t.Fatalf("nothing is reserved: %v", err)
				}
			}
			holders[i] = append(holders[i], h)
		}
	}
	b.act(t, s, late)
	for i, w := range s.witnesses {
		row := holdRow{fault: b.name, client: w.lib.Name, image: s.server.Image}
		all := holdBudget(t, w.patient)
		for _, h := range holders[i] {
			h.settle(t)
			for op := range row.got {
				row.got[op] = row.got[op].plus(h.of[op])
			}
			row.slowest = max(row.slowest, h.slowest)
			if at := time.Unix(0, h.lastBad.Load()); at.After(s.healed) {
				row.settled = max(row.settled, at.Sub(s.healed))
			}
			row.charged += h.charged(t, all, b.forgets == "")
			row.used += h.used
			row.lost += h.lost
			row.repeated += h.repeated
		}
		t.Logf("%+v, the machine stood still for %v", row, late.still)
		if b.forgets == "" && row.lost > 0 {
			t.Errorf("%s: %d reservations were not held any more", w.lib.Name, row.lost)
		}
		if slices.Contains(row.got[:], got{}) {
			late.errorf("%s: callers got %+v: this test proves nothing", w.lib.Name, row.got)
		}
		// Reserve asks once more if the outcome is unknown.
		if row.slowest > servers.LatestAnswer(200*time.Millisecond, late.still) {
			late.errorf("%s: an answer took %v", w.lib.Name, row.slowest)
		}
		holdTable.add(row)
	}
}

// settle settles all that is open, and repeats all settlements.
func (h *holder) settle(t *testing.T) {
	t.Helper()
	for len(h.open) > 0 {
		servers.Within(t, func() bool { return h.commit() == nil }, "a reservation is not settled")
	}
	for len(h.again) > 0 {
		servers.Within(t, func() bool { return h.repeat() == nil }, "no second settlement")
	}
	for _, err := range []error{h.wrong, h.caller.wrong} {
		if err != nil {
			t.Error(err)
		}
	}
}

// charged returns how many units are recorded when all holds of unknown outcome have timed out. It
// fails unless that is what was used, or less if the server loses data.
func (h *holder) charged(t *testing.T, all *ratelimit.Limiter, exactly bool) (n int64) {
	t.Helper()
	servers.Within(t, func() bool {
		res, err := all.Peek(t.Context(), h.key)
		n = driver.MaxUnits - res.Remaining
		return err == nil && (n == h.used || !exactly && n < h.used)
	}, "not what was used is charged")
	return n
}

// A holdRow is what the reservations of one client of one server got in one fault.
type holdRow struct {
	fault, client, image string

	got           [3]got // in the order of reserves, renews and commits
	slowest       time.Duration
	settled       time.Duration // the last failed call, since the end of the fault
	used, charged int64
	lost          int // reservations that the server had lost
	repeated      int // settlements of the second time
}

func (r holdRow) of() [3]string { return [3]string{r.fault, r.client, r.image} }

var holdColumns = slices.Concat(
	outcomesOf("Reserve", reserves), outcomesOf("renewal", renews), outcomesOf("Commit", commits),
	[]column[holdRow]{
		{"slowest call (ms)", millisOf(func(r holdRow) time.Duration { return r.slowest })},
		{"normal after (ms)", millisOf(func(r holdRow) time.Duration { return r.settled })},
		{"units used", countOf(func(r holdRow) int { return int(r.used) })},
		{"units charged", countOf(func(r holdRow) int { return int(r.charged) })},
		{"not held", countOf(func(r holdRow) int { return r.lost })},
	},
)

// outcomesOf tells how many calls were answered, unavailable and of unknown outcome.
func outcomesOf(name string, op int) []column[holdRow] {
	return []column[holdRow]{
		{name + " answered", countOf(func(r holdRow) int { return r.got[op].answers })},
		{name + " unavailable", countOf(func(r holdRow) int { return r.got[op].unavailable })},
		{name + " unknown", countOf(func(r holdRow) int { return r.got[op].unknown })},
	}
}
