package algorithm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// manyHolds is a key with many holds.
type manyHolds struct {
	held  Held
	state []byte
	now   int64
	ids   []uint64
	rand  *rand.Rand
	res   driver.Result
}

// newManyHolds returns a key with n holds of one unit, which have been placed over a time-out. If
// late is set, they have all timed out, and one more is open.
func newManyHolds(held Held, n int, late bool) *manyHolds {
	m := &manyHolds{held: held, now: epoch, rand: rand.New(rand.NewPCG(uint64(n), 9))}
	gap := held.timeout.Microseconds() / int64(n)
	for range n {
		m.now += gap
		m.hold()
	}
	if late {
		m.now += 2 * held.timeout.Microseconds()
		m.hold()
	}
	return m
}

func (m *manyHolds) step(op driver.Op, id uint64, n int64) {
	next, keep, res := driver.Demand{Algorithm: m.held, Op: op, ID: id, N: n}.Step(m.state, m.now)
	if keep > 0 {
		m.state = next
	}
	m.res = res
}

func (m *manyHolds) hold() {
	m.ids = append(m.ids, m.rand.Uint64()|1)
	m.step(driver.OpHold, m.ids[len(m.ids)-1], 1)
}

// any returns the ID of some hold.
func (m *manyHolds) any() uint64 { return m.ids[m.rand.IntN(len(m.ids))] }

// settle settles some hold.
func (m *manyHolds) settle() {
	i, last := m.rand.IntN(len(m.ids)), len(m.ids)-1
	m.step(driver.OpSettle, m.ids[i], 1)
	m.ids[i] = m.ids[last]
	m.ids = m.ids[:last]
}

// holdCalls are calls of a key with many holds, which leave it with as many.
var holdCalls = []struct {
	name string
	call func(*manyHolds)
}{
	{"take", func(m *manyHolds) { m.step(driver.OpTake, 0, 1) }},
	{"peek", func(m *manyHolds) { m.step(driver.OpPeek, m.any(), 1) }},
	{"renew", func(m *manyHolds) { m.step(driver.OpHold, m.any(), 0) }},
	{"hold and settle", func(m *manyHolds) { m.hold(); m.settle() }},
	{"refused", func(m *manyHolds) { m.step(driver.OpHold, 1<<63, m.held.Limit().Max) }},
}

// holdsOf returns limits with holds, in which time goes on by a millisecond a call.
func holdsOf() map[string]Held {
	limit := driver.Limit{Name: "units", Max: 1 << 30, Window: time.Minute}
	return map[string]Held{
		"in flight": InFlight("calls", 1<<30),
		"log":       Budget(SlidingLog(limit).WithResolution(time.Second)),
	}
}

// TestGuardHolds: a call changes at most twice as many bytes of a state with 65,000 holds as of one
// with 1,000, also when all have timed out.
func TestGuardHolds(t *testing.T) {
	for name, held := range holdsOf() {
		for _, late := range []bool{false, true} {
			few, many := newManyHolds(held, 1000, late), newManyHolds(held, 65_000, late)
			for _, c := range holdCalls {
				if held.InFlight() && c.name == "take" {
					continue
				}
				const calls = 8
				least, most := few.changes(calls, c.call), many.changes(calls, c.call)
				if most > 2*least || most > 5000*calls {
					t.Errorf("%s, timed out %v, %s: %d bytes of 65,000 holds change, %d of 1,000",
						name, late, c.name, most/calls, least/calls)
				}
			}
		}
	}
}

// changes makes calls, a millisecond after each other, and returns how many bytes the cache lines
// have that they change.
func (m *manyHolds) changes(calls int, call func(*manyHolds)) (bytesChanged int) {
	var before []byte
	for range calls {
		before = append(before[:0], m.state...)
		m.now += 1000
		call(m)
		bytesChanged += max(0, len(m.state)-len(before)) + changedIn(before, m.state, 1<<12)
	}
	return bytesChanged
}

// changedIn returns how many bytes the cache lines have that differ. It compares parts of a length.
func changedIn(before, after []byte, length int) (n int) {
	for i := 0; i+length <= min(len(before), len(after)); i += length {
		switch a, b := before[i:i+length], after[i:i+length]; {
		case bytes.Equal(a, b):
		case length == 64:
			n += length
		default:
			n += changedIn(a, b, 64)
		}
	}
	return n
}

// BenchmarkHolds measures calls of keys with few and many holds, which are open, or have timed out.
func BenchmarkHolds(b *testing.B) {
	for name, held := range holdsOf() {
		for _, late := range []bool{false, true} {
			for _, n := range []int{10, 1000, 65_000} {
				var m *manyHolds
				for _, c := range holdCalls {
					if held.InFlight() && c.name == "take" {
						continue
					}
					b.Run(fmt.Sprintf("%s/late=%v/%s/%d", name, late, c.name, n),
						func(b *testing.B) {
							if m == nil {
								m = newManyHolds(held, n, late)
							}
							b.ReportAllocs()
							for b.Loop() {
								c.call(m)
							}
						})
				}
			}
		}
	}
}
