package layer_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
	"github.com/truewindow/ratelimit/layer"
)

// blockModel is what a process has to know of the block of one key.
type blockModel struct {
	known   time.Time // the end of the block, as the process was last told
	pending time.Time // the end that it was given in an outage and the store does not have yet
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// TestDegradedBlockModel compares blocks that two processes set, lift and ask for, in outages that
// each has for itself, with a model.
func TestDegradedBlockModel(t *testing.T) {
	for seed := range depth.Of[uint64](10, 400) {
		synctest.Test(t, func(t *testing.T) {
			const processes, keys, steps = 2, 2, 300
			r := rand.New(rand.NewPCG(seed, 1))
			shared := newOutage(t)
			var inside [processes]*outage
			var s [processes]*layer.Degraded
			for p := range s {
				inside[p] = &outage{Store: shared.Store}
				s[p] = newDegraded(t, inside[p],
					&layer.DegradedOptions{Instances: r.IntN(3) + 1})
			}
			var stored [keys]time.Time
			var models [processes][keys]blockModel
			record := func(p, k int) { // what the layer does before the store decides
				m := &models[p][k]
				if m.pending.After(time.Now()) {
					stored[k] = later(stored[k], m.pending)
					m.known = later(m.known, stored[k])
				}
				m.pending = time.Time{}
			}
			var log []string
			for range steps {
				p, k := r.IntN(processes), r.IntN(keys)
				m, mode := &models[p][k], inside[p].mode.Load()
				d := driver.Demand{Key: fmt.Sprint("k", k), Algorithm: blocking, N: 1}
				what, now := r.IntN(9), time.Now()
				log = append(log, fmt.Sprint(now.Format("04:05.000"), " process ", p, " key ", k,
					" mode ", mode, " step ", what))
				switch what {
				case 0, 1:
					time.Sleep(time.Duration(r.IntN(40_000)) * time.Millisecond)
					continue
				case 2:
					mode = []int32{up, gone, frozen}[r.IntN(3)]
					const recorded = 2 * time.Second // in which all that is pending is recorded
					for mode == up && endsSoon(models[p][:], recorded) {
						time.Sleep(recorded)
					}
					inside[p].mode.Store(mode)
					if mode == up {
						time.Sleep(recorded)
						for k := range keys {
							record(p, k)
						}
					}
					continue
				case 3, 4:
					d.Op, d.N = driver.OpForce, 1+r.Int64N(120_000)
				case 5:
					d.Op = driver.OpReset
				case 6:
					d.Op = driver.OpPeek
				}
				res, err := s[p].Take(t.Context(), d)
				if what == 8 && mode != frozen { // with a limit, which refuses now and then
					ds := []driver.Demand{{Key: d.Key, Algorithm: eight, N: 1}, d}
					out := make([]driver.Result, 2)
					err = s[p].TakeAll(t.Context(), ds, out)
					res = out[1]
				}
				end := now.Add(time.Duration(d.N) * time.Millisecond)
				if mode == up {
					record(p, k)
				}
				// While something is pending, nothing else is sent for the key.
				applied := mode == frozen && !m.pending.After(now)
				switch {
				case d.Op == driver.OpForce && mode != up:
					m.pending, m.known = later(m.pending, end), later(m.known, end)
					if applied {
						stored[k] = later(stored[k], end)
					}
				case d.Op == driver.OpForce:
					stored[k] = later(stored[k], end)
					m.known = stored[k]
				case d.Op == driver.OpReset && mode == up:
					stored[k], *m = time.Time{}, blockModel{}
				case d.Op == driver.OpReset:
					if !errors.Is(err, driver.ErrUnavailable) {
						t.Fatalf("seed %d: a reset in an outage: %+v, %v", seed, res, err)
					}
					if applied {
						stored[k] = time.Time{}
					}
					continue
				case mode == up:
					m.known = stored[k]
				}
				want := max(0, m.known.Sub(now))
				refused := want > 0 && d.Op <= driver.OpPeek
				if err != nil || res.ResetAfter != want || res.Allowed == refused ||
					(res.Source == driver.SourceStore) != (mode == up) {
					for _, line := range log {
						t.Log(line)
					}
					t.Fatalf("seed %d: %+v, %v; want a block of %v", seed, res, err, want)
				}
			}
			for p := range s {
				inside[p].mode.Store(up)
			}
			time.Sleep(2 * time.Second)
			for p := range s {
				if n := s[p].Stats().Pending; n != 0 {
					t.Errorf("seed %d: %d pending", seed, n)
				}
			}
		})
	}
}

// endsSoon reports whether a pending block ends before d is over: it may or may not be recorded.
func endsSoon(models []blockModel, d time.Duration) bool {
	return slices.ContainsFunc(models, func(m blockModel) bool {
		return m.pending.After(time.Now()) && !m.pending.After(time.Now().Add(d))
	})
}
