package layer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

var blocking = algorithm.Blocking("blocked", time.Hour)

func onBlock(t testing.TB, s driver.Store, op driver.Op, n int64) driver.Result {
	t.Helper()
	res, err := s.Take(t.Context(), driver.Demand{Key: "k", Algorithm: blocking, Op: op, N: n})
	if err != nil {
		t.Fatalf("%v: %v", op, err)
	}
	return res
}

func set(t testing.TB, s driver.Store, d time.Duration) {
	t.Helper()
	onBlock(t, s, driver.OpForce, algorithm.BlockFor(d))
}

func lift(t testing.TB, s driver.Store) { t.Helper(); onBlock(t, s, driver.OpReset, 0) }

// left returns how long the key stays blocked. It checks the answers to a take and to a TakeAll of
// the block and a limit.
func left(t testing.TB, s driver.Store) time.Duration {
	t.Helper()
	res := onBlock(t, s, driver.OpTake, 1)
	ds := []driver.Demand{{Key: "k", Algorithm: eight, N: 1},
		{Key: "k", Algorithm: blocking, Op: driver.OpPeek, N: 1}}
	out := make([]driver.Result, 2)
	if err := s.TakeAll(t.Context(), ds, out); err != nil {
		t.Fatal(err)
	}
	if out[1] != onBlock(t, s, driver.OpPeek, 1) || res.Allowed != out[1].Allowed ||
		res.Allowed != (res.ResetAfter == 0) || res.ResetAfter != out[1].ResetAfter ||
		res.Limit.Max != blocking.Limit().Max || res.Allowed != (res.Remaining == res.Limit.Max) {
		t.Fatalf("%+v and %+v", res, out[1])
	}
	return res.ResetAfter
}

// TestDegradedBlock: in an outage a key is blocked until the end that the store has told, or until
// a later one that was set in the outage. After it, the store has the later of both ends.
func TestDegradedBlock(t *testing.T) {
	type process struct {
		*outage
		s     driver.Store // degraded
		other driver.Store // of a process for which the store is always available
	}
	const minutes = time.Minute
	for _, tt := range []struct {
		name           string
		before, during func(testing.TB, process)
		mode           int32
		local, after   time.Duration // what is left at the end of the outage, and after it
	}{
		{"never set", nil, nil, gone, 0, 0},
		{"set before", func(t testing.TB, p process) { set(t, p.s, 10*minutes) },
			nil, gone, 10 * minutes, 10 * minutes},
		{"lifted before", func(t testing.TB, p process) { set(t, p.s, 10*minutes); lift(t, p.s) },
			nil, gone, 0, 0},
		{"set twice before, then longer",
			func(t testing.TB, p process) { set(t, p.s, minutes); set(t, p.s, 10*minutes) },
			nil, gone, 10 * minutes, 10 * minutes},
		{"set twice before, then shorter",
			func(t testing.TB, p process) { set(t, p.s, 10*minutes); set(t, p.s, minutes) },
			nil, gone, 10 * minutes, 10 * minutes},
		{"lifted before, then shorter", func(t testing.TB, p process) {
			set(t, p.s, 10*minutes)
			lift(t, p.s)
			set(t, p.s, minutes)
		}, nil, gone, minutes, minutes},
		{"longer than the longest time",
			func(t testing.TB, p process) { set(t, p.s, 3*time.Hour) },
			func(t testing.TB, p process) { set(t, p.s, 3*time.Hour) },
			gone, time.Hour, time.Hour},
		{"set during", nil,
			func(t testing.TB, p process) { set(t, p.s, 10*minutes) },
			gone, 10 * minutes, 10 * minutes},
		{"set twice during", nil,
			func(t testing.TB, p process) { set(t, p.s, 10*minutes); set(t, p.s, minutes) },
			gone, 10 * minutes, 10 * minutes},
		{"set before, longer during",
			func(t testing.TB, p process) { set(t, p.s, minutes) },
			func(t testing.TB, p process) { set(t, p.s, 10*minutes) },
			gone, 10 * minutes, 10 * minutes},
		{"set before, shorter during",
			func(t testing.TB, p process) { set(t, p.s, 10*minutes) },
			func(t testing.TB, p process) { set(t, p.s, minutes) },
			gone, 10 * minutes, 10 * minutes},
		{"set during, longer by another process", nil,
			func(t testing.TB, p process) { set(t, p.s, minutes); set(t, p.other, 10*minutes) },
			gone, minutes, 10 * minutes},
		{"without an answer", nil,
			func(t testing.TB, p process) { set(t, p.s, 10*minutes) },
			frozen, 10 * minutes, 10 * minutes},
		{"without an answer for long", nil,
			func(t testing.TB, p process) { set(t, p.s, 10*minutes); time.Sleep(5 * minutes) },
			deaf, 5 * minutes, 5 * minutes},
		{"set by another process, and taken before",
			func(t testing.TB, p process) {
				set(t, p.other, 10*minutes)
				onBlock(t, p.s, driver.OpTake, 1)
			}, nil, gone, 10 * minutes, 10 * minutes},
		{"set by another process, and taken with a limit before",
			func(t testing.TB, p process) {
				set(t, p.other, 10*minutes)
				ds := []driver.Demand{{Key: "k", Algorithm: eight, N: 1},
					{Key: "k", Algorithm: blocking, Op: driver.OpPeek, N: 1}}
				if err := p.s.TakeAll(t.Context(), ds, make([]driver.Result, 2)); err != nil {
					t.Error(err)
				}
			}, nil, gone, 10 * minutes, 10 * minutes},
		{"set by another process, not asked for",
			func(t testing.TB, p process) { set(t, p.other, 10*minutes) },
			nil, gone, 0, 10 * minutes},
		{"lifted by another process, and taken before",
			func(t testing.TB, p process) {
				set(t, p.s, 10*minutes)
				lift(t, p.other)
				onBlock(t, p.s, driver.OpTake, 1)
			}, nil, gone, 0, 0},
		{"lifted and shortened by another process, and taken before",
			func(t testing.TB, p process) {
				set(t, p.s, 10*minutes)
				lift(t, p.other)
				set(t, p.other, minutes)
				onBlock(t, p.s, driver.OpTake, 1)
			}, nil, gone, minutes, minutes},
		{"lifted by another process, not asked for, and set during",
			func(t testing.TB, p process) { set(t, p.s, 10*minutes); lift(t, p.other) },
			func(t testing.TB, p process) { set(t, p.s, minutes) },
			gone, 10 * minutes, minutes},
		{"runs out", func(t testing.TB, p process) { set(t, p.s, minutes) },
			func(t testing.TB, p process) { set(t, p.s, minutes); time.Sleep(2 * minutes) },
			gone, 0, 0},
		{"not lifted during", func(t testing.TB, p process) { set(t, p.s, 10*minutes) },
			func(t testing.TB, p process) {
				_, err := p.s.Take(t.Context(), driver.Demand{Key: "k", Algorithm: blocking,
					Op: driver.OpReset})
				if !errors.Is(err, driver.ErrUnavailable) {
					t.Error(err)
				}
			}, gone, 10 * minutes, 10 * minutes},
		{"takes set no block",
			func(t testing.TB, p process) { onBlock(t, p.s, driver.OpTake, 5000) },
			func(t testing.TB, p process) { onBlock(t, p.s, driver.OpTake, 5000) },
			gone, 0, 0},
	} {
		for _, instances := range []int{1, 3} {
			t.Run(fmt.Sprint(tt.name, ", ", instances), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newOutage(t)
					d := newDegraded(t, store, &layer.DegradedOptions{Instances: instances})
					p := process{store, d, store.Store}
					if tt.before != nil {
						tt.before(t, p)
					}
					store.mode.Store(tt.mode)
					if tt.during != nil {
						tt.during(t, p)
					}
					if got := left(t, d); got < tt.local || got > tt.local+time.Millisecond {
						t.Errorf("blocked for %v in the outage, want %v", got, tt.local)
					}
					store.mode.Store(up)
					const later = 3 * time.Second
					time.Sleep(later)
					want := max(0, tt.after-later)
					got := left(t, store.Store)
					if got < want || got > want+time.Millisecond {
						t.Errorf("blocked for %v after the outage, want %v", got, want)
					}
					if again := left(t, d); again != got {
						t.Errorf("blocked for %v by way of the layer, and for %v in the store",
							again, got)
					}
					if st := d.Stats(); st.Pending != 0 || st.Unavailable {
						t.Errorf("%+v", st)
					}
				})
			})
		}
	}
}

// slow is an outage that delays answers by late.
type slow struct {
	*outage
	late atomic.Int64
}

func (s *slow) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	late := s.late.Load()
	res, err := s.outage.Take(ctx, d)
	time.Sleep(time.Duration(late))
	return res, err
}

// TestDegradedBlockOlderAnswer: an answer about a block that the store gave before the block was
// set, prolonged or lifted does not undo that when it arrives later.
func TestDegradedBlockOlderAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		before, older, newer func(testing.TB, driver.Store)
		want                 time.Duration
	}{
		"free, then set": {
			older: func(t testing.TB, s driver.Store) { onBlock(t, s, driver.OpPeek, 1) },
			newer: func(t testing.TB, s driver.Store) { set(t, s, 10*time.Minute) },
			want:  10 * time.Minute,
		},
		"set, then lifted": {
			before: func(t testing.TB, s driver.Store) { set(t, s, 10*time.Minute) },
			older:  func(t testing.TB, s driver.Store) { onBlock(t, s, driver.OpTake, 1) },
			newer:  lift,
		},
		"set, then prolonged": {
			older: func(t testing.TB, s driver.Store) { set(t, s, time.Minute) },
			newer: func(t testing.TB, s driver.Store) { set(t, s, 10*time.Minute) },
			want:  10 * time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &slow{outage: newOutage(t)}
				s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
				if c.before != nil {
					c.before(t, s)
				}
				store.late.Store(int64(time.Millisecond))
				var older sync.WaitGroup
				older.Go(func() { c.older(t, s) })
				synctest.Wait()
				store.late.Store(0)
				c.newer(t, s)
				older.Wait()
				store.mode.Store(gone)
				want := max(0, c.want-time.Millisecond)
				if got := left(t, s); got != want {
					t.Errorf("blocked for %v, want %v", got, want)
				}
			})
		})
	}
}

// TestDegradedBlockWithoutRoom: a block for which there is no room leaves demands on blocks
// undecided, rather than admitted, until it ends.
func TestDegradedBlockWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2, MaxKeys: 1})
		ask(t, s, driver.OpTake, "other", 1)
		set(t, s, 10*time.Minute)
		if n := s.Stats().Untracked; n != 1 {
			t.Errorf("%d are not tracked", n)
		}
		store.mode.Store(gone)
		d := driver.Demand{Key: "k", Algorithm: blocking, N: 1}
		undecided := func() {
			t.Helper()
			if res, err := s.Take(t.Context(), d); !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("%+v, %v", res, err)
			}
		}
		undecided()
		time.Sleep(10*time.Minute - time.Microsecond)
		undecided() // although "other" has run out
		time.Sleep(time.Microsecond)
		if !onBlock(t, s, driver.OpTake, 1).Allowed {
			t.Error("refused after the end of the block")
		}
	})
}

// TestDegradedBlockAmongLimits: under a limit and a block together, units are held, settled and
// recorded as without the block.
func TestDegradedBlockAmongLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
		l, err := ratelimit.New(s, algorithm.Budget(eight), blocking)
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []int32{up, gone} {
			store.mode.Store(mode)
			r, err := l.Reserve(t.Context(), "k", 2)
			if err != nil || !r.Allowed() {
				t.Fatalf("%+v, %v", r, err)
			}
			if err := r.Commit(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
		store.mode.Store(up)
		time.Sleep(time.Second)
		res, err := ratelimit.PeekAll(t.Context(), ratelimit.Claim{Limiter: l, Key: "k", N: 1})
		if err != nil || !res[0].Allowed || res[0].Remaining != 6 {
			t.Errorf("%+v, %v, want 6 of 8 to remain", res, err)
		}
	})
}
