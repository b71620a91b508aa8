package algorithm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// orders are the orders in which the units of some takes are given back.
var orders = []struct {
	name string
	of   func(r *rand.Rand, ats []int64)
}{
	{"in order", func(*rand.Rand, []int64) {}},
	{"opposite", func(_ *rand.Rand, ats []int64) { slices.Reverse(ats) }},
	{"random", func(r *rand.Rand, ats []int64) {
		r.Shuffle(len(ats), func(i, j int) { ats[i], ats[j] = ats[j], ats[i] })
	}},
}

// TestGivenBackIsBounded takes 100,000 times within a window, or a million times with
// RATELIMIT_FULL=1, and gives each unit back, at once or when the limit is used up. The size of the
// log then depends only on what it still holds.
func TestGivenBackIsBounded(t *testing.T) {
	takes := int64(100_000)
	if os.Getenv("RATELIMIT_FULL") != "" {
		takes = 1_000_000
	}
	for _, tt := range []struct {
		limit int64
		bytes int // 12 for each of 2 · records + 64 records at most, and what the form adds
	}{{5, 152}, {100, 3_328}, {10_000, 280_000}} {
		l := SlidingLog(driver.PerHour("hour", tt.limit))
		for _, held := range []int64{0, tt.limit / 2} {
			for i, order := range orders {
				for _, at := range []int64{1, tt.limit - held} {
					if at == 1 && i > 0 {
						continue // there is only one order
					}
					t.Run(fmt.Sprintf("%d/held %d/%d at a time %s", tt.limit, held, at, order.name),
						func(t *testing.T) {
							b := backAndForth{log: l, now: epoch,
								r: rand.New(rand.NewPCG(1, uint64(tt.limit)))}
							for range held {
								b.take(t)
							}
							b.ats = b.ats[:0]
							var start, end costs
							for done := int64(0); done < takes; done += at {
								c := &costs{}
								switch {
								case done < takes/10:
									c = &start
								case done >= takes*9/10:
									c = &end
								}
								b.round(t, at, order.of, c)
							}
							g, ok := decodeLog(b.state)
							if !ok || g.used != held {
								t.Fatalf("%d units, want %d; decodes %v", g.used, held, ok)
							}
							t.Logf("%d bytes, %d records; a call: at the start %v, at the end %v",
								cap(b.state), g.count, &start, &end)
							if b.most > tt.bytes {
								t.Errorf("up to %d bytes, want at most %d", b.most, tt.bytes)
							}
						})
				}
			}
		}
	}
}

// costs are those of some calls.
type costs struct {
	calls        int
	sum, slowest time.Duration
}

func (c *costs) String() string {
	return fmt.Sprintf("%v, slowest %v", c.sum/time.Duration(max(1, c.calls)), c.slowest)
}

// backAndForth is a log whose units are taken and given back.
type backAndForth struct {
	log   Log
	state []byte
	most  int // bytes
	now   int64
	ats   []int64 // of takes
	r     *rand.Rand
}

// step decides d and keeps the state.
func (b *backAndForth) step(t *testing.T, d driver.Demand) driver.Result {
	t.Helper()
	next, keep, res := b.log.Step(b.state, b.now, d)
	if keep <= 0 || !res.Allowed {
		t.Fatalf("%v at %d: %+v, keep %v", d.Op, b.now-epoch, res, keep)
	}
	b.state, b.most = next, max(b.most, cap(next))
	return res
}

func (b *backAndForth) take(t *testing.T) {
	t.Helper()
	b.now++
	b.ats = append(b.ats, b.step(t, take(1)).At)
}

// round takes this number of times, and gives each unit back in an order.
func (b *backAndForth) round(t *testing.T, takes int64, order func(*rand.Rand, []int64), c *costs) {
	t.Helper()
	timed := func(f func()) {
		begin := time.Now()
		f()
		d := time.Since(begin)
		c.calls, c.sum, c.slowest = c.calls+1, c.sum+d, max(c.slowest, d)
	}
	for range takes {
		timed(func() { b.take(t) })
	}
	order(b.r, b.ats)
	for _, at := range b.ats {
		timed(func() { b.step(t, driver.Demand{Op: driver.OpGiveBack, N: 1, At: at}) })
	}
	b.ats = b.ats[:0]
}

// TestMostIsGivenBack compares Step with the model, which keeps all records, on logs that give four
// of five units back, at once or later, in any order. compare checks the bound.
func TestMostIsGivenBack(t *testing.T) {
	for _, limit := range []int64{3, 40, 300, 2000} {
		for _, window := range []time.Duration{time.Second, time.Hour} {
			for seed := range uint64(len(orders)) {
				l := SlidingLog(driver.Limit{Name: "l", Max: limit, Window: window})
				if seed == 1 {
					l = l.WithResolution(7 * time.Microsecond)
				}
				swept := playGivenBack(t, l, rand.New(rand.NewPCG(seed, uint64(limit))),
					orders[seed].of)
				if limit == 2000 && swept < 20 {
					t.Errorf("%d states in a sweep: too few for what this tests", swept)
				}
			}
		}
	}
}

func playGivenBack(t *testing.T, l Log, r *rand.Rand, order func(*rand.Rand, []int64)) (swept int) {
	t.Helper()
	var state []byte
	var model naive
	var ats []int64
	now, i := epoch, 0
	step := func(d driver.Demand) driver.Result {
		t.Helper()
		i++
		next, keep, res := l.Step(state, now, d)
		if want, _ := model.step(l, now, d); res != want || keep < 0 {
			t.Fatalf("%v, step %d: %v of %d: got %+v, want %+v", l.Limit(), i, d.Op, d.N, res, want)
		}
		if keep > 0 {
			state = next
		}
		g, _ := decodeLog(state)
		if g.sweeping {
			swept++
		}
		if i%8 == 0 || g.sweeping || l.Limit().Max < 50 {
			compare(t, i, state, now, &model)
		} else {
			checkEmpties(t, i, &g)
		}
		return res
	}
	for range 5 {
		some := 1 + r.Int64N(l.Limit().Max)
		for range min(some, 1200) {
			now += 1 + r.Int64N(l.Limit().Window.Microseconds()/2000)
			if r.IntN(500) == 0 {
				now += r.Int64N(l.Limit().Window.Microseconds()) - l.Limit().Window.Microseconds()/4
			}
			if res := step(take(1)); res.Allowed {
				if r.IntN(3) == 0 {
					step(driver.Demand{Op: driver.OpGiveBack, N: 1, At: res.At})
				} else {
					ats = append(ats, res.At)
				}
			}
			if r.IntN(20) == 0 {
				step(peek(1 + r.Int64N(l.Limit().Max)))
			}
		}
		order(r, ats)
		for _, at := range ats {
			if r.IntN(10) < 7 {
				step(driver.Demand{Op: driver.OpGiveBack, N: 1, At: at})
			}
		}
		ats = ats[:0]
	}
	return swept
}

// TestGiveBackWhereNothingIs: a give-back at the stamp of a dropped record, or at stamp 0, gives
// back nothing and writes nothing, in each form.
func TestGiveBackWhereNothingIs(t *testing.T) {
	for _, records := range []int64{1, 9, 100, 1000} {
		l := SlidingLog(driver.PerHour("hour", 2*records))
		b := backAndForth{log: l, now: epoch}
		for range 2 * records {
			b.take(t)
		}
		for i, at := range b.ats {
			if i%2 == 0 {
				b.step(t, driver.Demand{Op: driver.OpGiveBack, N: 1, At: at})
			}
		}
		ats := append(slices.Clone(b.ats), 0)
		b.take(t)
		for i, at := range ats {
			if i%2 == 1 {
				continue
			}
			d := driver.Demand{Op: driver.OpGiveBack, N: 5, At: at}
			_, keep, res := l.Step(b.state, b.now, d)
			if keep != 0 || !res.Allowed || res.Remaining != records-1 {
				t.Fatalf("%d records, give back at %d again: %+v, keep %v",
					records, at-epoch, res, keep)
			}
		}
	}
}

// TestMassExpiry: after all records with units have left the window, the next admission leaves a
// log of bounded size.
func TestMassExpiry(t *testing.T) {
	const records = 4000
	l := SlidingLog(driver.PerHour("hour", 2*records))
	b := backAndForth{log: l, now: epoch}
	for range records {
		b.take(t)
	}
	b.now += 1800 * second
	b.ats = nil
	for range records / 4 {
		b.take(t)
	}
	for _, at := range b.ats[:len(b.ats)-1] {
		b.step(t, driver.Demand{Op: driver.OpGiveBack, N: 1, At: at})
	}
	b.now += 1801 * second
	for range 17 {
		b.take(t)
	}
	if g, _ := decodeLog(b.state); g.count != 18 || g.used != 18 {
		t.Errorf("%d records of %d units, want 18", g.count, g.used)
	}
}

// TestSweepMovesLittle: no call writes more than an eighth of a large ring plus some blocks,
// however many records become empty.
func TestSweepMovesLittle(t *testing.T) {
	const records = 4000
	l := SlidingLog(driver.PerHour("hour", records))
	for _, order := range orders {
		b := backAndForth{log: l, now: epoch, r: rand.New(rand.NewPCG(1, 2))}
		for range records {
			b.take(t)
		}
		order.of(b.r, b.ats)
		sweeps, sweeping := 0, false
		for i, at := range b.ats[:records*4/5] {
			if i%5 == 4 {
				b.take(t)
			}
			before := slices.Clone(b.state)
			b.step(t, driver.Demand{Op: driver.OpGiveBack, N: 1, At: at})
			g, _ := decodeLog(b.state)
			if g.sweeping && !sweeping {
				sweeps++
			}
			if sweeping = g.sweeping; g.count <= 2*lineMax {
				break
			}
			written := 0
			for j := 0; j < len(before); j += recordSize {
				end := min(j+recordSize, len(before))
				if !bytes.Equal(b.state[j:end], before[j:end]) {
					written += end - j
				}
			}
			if most := g.slots*recordSize/8 + 4*blockSize; written > most {
				t.Fatalf("%s, give-back %d: %d bytes of %d have changed",
					order.name, i, written, len(b.state))
			}
		}
		if sweeps < 3 {
			t.Errorf("%s: %d sweeps", order.name, sweeps)
		}
	}
}
