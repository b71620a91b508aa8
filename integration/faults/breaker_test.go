package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
	"github.com/truewindow/ratelimit/layer"
)

// breakerFaults are the faults that a breaker may see differently.
var breakerFaults = []string{
	"SIGSTOP", "SIGKILL, restart with an append-only file", resetBefore, "half-open: requests lost",
	"half-open: answers lost", "everything arrives 1 s late",
}

const (
	// breakerFailures are the failures in a row that open a breaker.
	breakerFailures = 20
	// breakerReturn is three times the second within which a recovery is to be noticed.
	breakerReturn = 3 * time.Second
	// openAnswer is ten times as long as an open breaker may take to answer, because of the race
	// detector and busy machines.
	openAnswer = 100 * time.Microsecond
)

// TestFaultsBreaker puts a breaker around the store of each client. The breaker opens after 20
// failed calls in a row, answers at once while it is open, and lets demands through again soon
// after the server has recovered.
func TestFaultsBreaker(t *testing.T) {
	t.Parallel() // it mostly waits
	for i, image := range faultImages() {
		t.Run(strings.ReplaceAll(image, "/", "-"), func(t *testing.T) {
			t.Parallel()
			stages := newStages(t, image)
			for j, name := range breakerFaults {
				b := breakages[slices.IndexFunc(breakages,
					func(b breakage) bool { return b.name == name })]
				if depth.Full || j%len(faultImages()) == i {
					t.Run(name, func(t *testing.T) {
						inTime(t, func(late *lateness) {
							breakUp(t, b, newScene(t, stages(b.durable), b.network), late)
						})
					})
				}
			}
		})
	}
}

func breakUp(t *testing.T, b breakage, s *scene, late *lateness) {
	rows, inRow := make([]breakerRow, len(s.witnesses)), make([]failuresInRow, len(s.witnesses))
	breakers := make([]*layer.Breaker, len(rows))
	opened := make([]chan layer.BreakerStats, len(rows))
	for i, w := range s.witnesses {
		opened[i] = make(chan layer.BreakerStats, 1)
		var err error
		inRow[i].Store = w.callers[0].store
		breakers[i], err = layer.NewBreaker(&inRow[i],
			&layer.BreakerOptions{OnChange: func(_, to layer.BreakerState) {
				if to == layer.BreakerOpen {
					if inRow[i].atOpening == 0 {
						inRow[i].atOpening = inRow[i].n.Load()
					}
					select {
					case opened[i] <- breakers[i].Stats():
					default: // not for the first time
					}
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range w.callers {
			c.store = breakers[i]
		}
	}
	begin, wait := b.begin, max(b.lasts, breakageLasts)
	before := make([]int64, len(rows)) // failures before the fault, on a busy machine
	b.begin = func(t testing.TB, s *scene) {
		for i, breaker := range breakers {
			before[i] = breaker.Stats().Failures
		}
		begin(t, s)
	}
	b.during = func(t testing.TB, s *scene) {
		began := time.Now()
		for i, breaker := range breakers {
			select {
			case stats := <-opened[i]:
				rows[i].opened, rows[i].failures = time.Since(began), stats.Failures-before[i]
			case <-time.After(servers.FaultTimeout):
				t.Fatal("a breaker does not open")
			}
			rows[i].median, rows[i].longest = askOpen(t, breaker)
		}
		pause(wait - time.Since(began))
	}
	b.act(t, s, late)
	for i, w := range s.witnesses {
		row := w.judge(t, b, s, late)
		rows[i].faultRow = row
		t.Logf("%+v, %+v", rows[i], breakers[i].Stats())
		// Other calls may have been in flight when the last of them failed.
		n, most := inRow[i].atOpening, int64(breakerFailures+len(w.callers))
		if rows[i].failures+before[i] < breakerFailures || n > most {
			t.Errorf("%s: opened after %d failed calls, %d of them in a row",
				w.lib.Name, rows[i].failures, n)
		}
		if rows[i].median > openAnswer {
			late.errorf("%s: an open breaker takes %v to answer", w.lib.Name, rows[i].median)
		}
		if row.noticed > breakerReturn+2*late.still {
			late.errorf("%s: the recovery was noticed after %v", w.lib.Name, row.noticed)
		}
		breakerTable.add(rows[i])
	}
}

// failuresInRow counts the calls of a store that failed since the last one that was answered.
type failuresInRow struct {
	ratelimit.Store
	n         atomic.Int64
	atOpening int64
}

func (s *failuresInRow) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	res, err := s.Store.Take(ctx, d)
	if err != nil {
		s.n.Add(1)
	} else {
		s.n.Store(0)
	}
	return res, err
}

// askOpen returns how long an open breaker takes to answer: the median and the longest of the calls
// that it answered itself.
func askOpen(t testing.TB, b *layer.Breaker) (median, longest time.Duration) {
	t.Helper()
	var took []time.Duration
	for range 2000 {
		start := time.Now()
		_, err := b.Take(context.Background(),
			driver.Demand{Key: "open", Algorithm: faultLog, N: 1})
		if d := time.Since(start); errors.Is(err, layer.ErrBreakerOpen) {
			took = append(took, d)
		}
	}
	if len(took) < 1000 {
		t.Fatalf("an open breaker answered %d of 2000 calls itself", len(took))
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)-1]
}

// A breakerRow is a faultRow with a breaker around the store.
type breakerRow struct {
	faultRow
	opened          time.Duration // since the beginning of the fault
	failures        int64         // until it opened
	median, longest time.Duration // of answers of the open breaker
}

var breakerColumns = []column[breakerRow]{
	{"opened after (ms)", millisOf(func(r breakerRow) time.Duration { return r.opened })},
	{"answer while open (µs)", func(r breakerRow) string {
		return fmt.Sprintf("%.1f", float64(r.median.Nanoseconds())/1000)
	}},
	{"slowest call (ms)", millisOf(func(r breakerRow) time.Duration { return r.slowest })},
	{"noticed after (ms)", millisOf(func(r breakerRow) time.Duration { return r.noticed })},
}
