package conformance

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

var orderRules = []rule{
	{name: "clock/order", says: saysClock + " " + saysShared, needs: ownClock,
		check: func(e *env) { checkClockOrder(e, only) }},
	{name: "clock/order-two-clients", says: saysClock + " " + saysShared, needs: ownClock | second,
		check: func(e *env) { checkClockOrder(e, either) }},
}

// numbered is an algorithm that admits everything and numbers the takes on a state: the n-th has n
// less Remaining than Limit. ResetAfter is the clock as Step got it, even if it is behind that of
// the step before.
type numbered struct{ limit driver.Limit }

func newNumbered(name string) numbered {
	return numbered{driver.Limit{Name: name, Max: driver.MaxUnits, Window: window}}
}

func (numbered) Name() string          { return "numbered1" }
func (n numbered) Limit() driver.Limit { return n.limit }
func (n numbered) Validate() error     { return n.limit.Validate() }

func (n numbered) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	taken := uint64(0)
	switch len(state) {
	case 0:
	case 8:
		taken = binary.BigEndian.Uint64(state)
	default:
		return nil, -1, driver.Result{}
	}
	res := driver.Result{Allowed: true, Limit: n.limit,
		Remaining: n.limit.Max - int64(taken), ResetAfter: time.Duration(now) * time.Microsecond}
	if d.Op != driver.OpTake {
		return state, 0, res
	}
	res.Remaining--
	return binary.BigEndian.AppendUint64(nil, taken+1), n.limit.Window, res
}

const numberedSource = `
local function step(key, tail, now, op, n, at, args, pos)
  local max, keep = struct.unpack('>I7I7', args, pos)
  local taken = 0
  if #tail > 0 then
    if #tail ~= 8 then return nil end
    taken = struct.unpack('>I8', tail)
  end
  if op ~= 0 then return 1, max - taken, 0, now, now, nil, nil end
  return 1, max - taken - 1, 0, now, now, keep, struct.pack('>I8', taken + 1)
end
`

func (numbered) Script() driver.Script {
	return driver.Script{Name: "numbered1", Source: numberedSource,
		Args: func(dst []int64, d driver.Demand) []int64 {
			limit := d.Algorithm.Limit()
			return append(dst, limit.Max, limit.Window.Microseconds())
		}}
}

// A numberedTake is a take of a numbered algorithm.
type numberedTake struct {
	called, returned time.Duration
	number, at       int64
}

// The size of a round of checkClockOrder: each goroutine calls for orderTime, at least orderLeast
// times and at most orderMost times.
const (
	orderGoroutines = 24
	orderLeast      = 12
	orderMost       = 1000
	orderTime       = 300 * time.Millisecond
	orderAgain      = 4 // rounds after one in which the clock went back
)

// checkClockOrder has many goroutines take on two states. If the clock is read before the state is
// locked, it goes back between two steps when callers get the lock in another order. TakeAlls of
// both states wait for two locks, so this happens even if each lock is granted in order.
//
// The clock of a virtual machine may be set back by some microseconds at any time, so only a store
// whose clock goes back in a second round is wrong.
func checkClockOrder(e *env, client func(*env, int) driver.Store) {
	err := clockOrder(e, client)
	if errors.Is(err, errClockBack) {
		err = nil
		for i := 0; i < orderAgain && err == nil; i++ {
			err = clockOrder(e, client)
		}
	}
	if err != nil {
		e.fatalf("%w", err)
	}
}

// clockOrder is a round of checkClockOrder. It returns what is wrong with the order of the takes.
func clockOrder(e *env, client func(*env, int) driver.Store) error {
	key, a, b := e.key(), newNumbered("a"), newNumbered("b")
	_, single := e.except["takeall"]
	var mu sync.Mutex
	takes := make(map[driver.Algorithm][]numberedTake)
	begin := time.Now()
	e.together(orderGoroutines, func(g int) error {
		mine := make(map[driver.Algorithm][]numberedTake)
		for i := 0; i < orderLeast || i < orderMost && time.Since(begin) < orderTime; i++ {
			ds := [][]driver.Demand{
				{take(key, a, 1)}, {take(key, b, 1)}, {take(key, a, 1), take(key, b, 1)},
				{take(key, b, 1), take(key, a, 1)},
			}[(g+i)%4]
			if single {
				ds = ds[:1]
			}
			out := make([]driver.Result, len(ds))
			called := time.Since(begin)
			var err error
			if store := client(e, g+i/4); len(ds) == 1 {
				out[0], err = store.Take(e.ctx, ds[0])
			} else if err = store.TakeAll(e.ctx, ds, out); errors.Is(err, errors.ErrUnsupported) {
				continue
			}
			if err != nil {
				return err
			}
			returned := time.Since(begin)
			for j, res := range out {
				if !res.Allowed || res.Source != driver.SourceStore {
					return fmt.Errorf("a take that is always admitted returned %+v", res)
				}
				alg := ds[j].Algorithm
				mine[alg] = append(mine[alg], numberedTake{called, returned,
					res.Limit.Max - res.Remaining, res.ResetAfter.Microseconds()})
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for alg, some := range mine {
			takes[alg] = append(takes[alg], some...)
		}
		return nil
	})
	var wrong error
	for _, some := range takes {
		if err := ordered(some); err != nil {
			wrong = fmt.Errorf("of %d takes on one state: %w", len(some), err)
			if !errors.Is(err, errClockBack) {
				return wrong
			}
		}
	}
	return wrong
}

var errClockBack = errors.New("the store reads its clock before it has locked the state")

// ordered returns an error if takes on one state were not decided one after the other, by a clock
// that does not go back.
func ordered(takes []numberedTake) error {
	slices.SortFunc(takes, func(a, b numberedTake) int { return cmp.Compare(a.number, b.number) })
	var back error
	for i, t := range takes {
		if t.number != int64(i)+1 {
			return fmt.Errorf("take %d has the number %d: a step was lost, or two steps ran on "+
				"the same state", i+1, t.number)
		}
		if i > 0 && t.at < takes[i-1].at && back == nil {
			back = fmt.Errorf("the clock of take %d is %v behind that of the take before: %w",
				t.number, time.Duration(takes[i-1].at-t.at)*time.Microsecond, errClockBack)
		}
	}
	first := time.Duration(1<<63 - 1) // return of this take or a later one
	for i := len(takes) - 1; i >= 0; i-- {
		if takes[i].called > first {
			return fmt.Errorf("take %d was called after a take with a greater number had returned",
				takes[i].number)
		}
		first = min(first, takes[i].returned)
	}
	return back
}
