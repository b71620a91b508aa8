package conformance

import (
	"bytes"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// Algorithms that wrap another. They show how a store that runs Step treats the state. A store that
// runs the script does not call them, so the cases check only what it returns.

// scriptOf returns inner's script for demands whose algorithm wraps inner.
func scriptOf(inner driver.Algorithm) driver.Script {
	script := inner.Script()
	if args := script.Args; args != nil {
		script.Args = func(dst []int64, d driver.Demand) []int64 {
			d.Algorithm = inner
			return args(dst, d)
		}
	}
	return script
}

// renamed is an algorithm that differs from another in the name only.
type renamed struct {
	driver.Algorithm
	name string
}

func (r renamed) Name() string { return r.name }

func (r renamed) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	d.Algorithm = r.Algorithm
	return r.Algorithm.Step(state, now, d)
}

func (r renamed) Script() driver.Script { return scriptOf(r.Algorithm) }

// hostile does all that the contract of Step permits: it overwrites or reuses the state that it
// got, and returns bytes that are not a state if nothing is to be written.
type hostile struct{ driver.Algorithm }

func (h hostile) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	d.Algorithm = h.Algorithm
	next, keep, res := h.Algorithm.Step(bytes.Clone(state), now, d)
	switch {
	case keep <= 0:
		return []byte("keep is not above 0"), keep, res
	case len(next) > 0 && len(next) <= cap(state) && now%2 == 0:
		return append(state[:0], next...), keep, res
	}
	for i := range state {
		state[i] ^= 0xff
	}
	return bytes.Clone(next), keep, res
}

func (h hostile) Script() driver.Script { return scriptOf(h.Algorithm) }

// hostileHolder is a hostile Holder.
type hostileHolder struct {
	hostile
	holds
}

// holds is what a Holder has beside an Algorithm.
type holds interface {
	HoldTimeout() time.Duration
	InFlight() bool
}

func beHostile(a driver.Algorithm) driver.Algorithm {
	if h, ok := a.(driver.Holder); ok {
		return hostileHolder{hostile{a}, h}
	}
	return hostile{a}
}

// spied is an algorithm that records the states that it gets.
type spied struct {
	driver.Algorithm
	seen *sightings
}

type sightings struct {
	mu     sync.Mutex
	states [][]byte
}

func spy(a driver.Algorithm) spied { return spied{a, new(sightings)} }

func (s spied) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	s.seen.mu.Lock()
	s.seen.states = append(s.seen.states, bytes.Clone(state))
	s.seen.mu.Unlock()
	d.Algorithm = s.Algorithm
	return s.Algorithm.Step(state, now, d)
}

func (s spied) Script() driver.Script { return scriptOf(s.Algorithm) }

// changed reports whether two of the states seen from the i-th on differ.
func (s *sightings) changed(i int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; i+1 < len(s.states); i++ {
		if !bytes.Equal(s.states[i], s.states[i+1]) {
			return true
		}
	}
	return false
}

// scriptless is an algorithm without a script.
type scriptless struct{ driver.Algorithm }

func (s scriptless) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	d.Algorithm = s.Algorithm
	return s.Algorithm.Step(state, now, d)
}

func (s scriptless) Script() driver.Script { return driver.Script{} }

// vandal writes bytes that are not a state of the algorithm whose name and limit it has.
type vandal struct {
	driver.Algorithm
	junk string
}

func (v vandal) Step(
	_ []byte, _ int64, _ driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	return []byte(v.junk), time.Hour, driver.Result{Allowed: true, Limit: v.Limit()}
}

// vandalSource writes the byte that args hold.
const vandalSource = `
local function step(key, tail, now, op, n, at, args, pos)
  return 1, 0, 0, 0, now, 3600000000, string.char((struct.unpack('>I7', args, pos)))
end
`

func (v vandal) Script() driver.Script {
	return driver.Script{Name: "vandal", Source: vandalSource,
		Args: func(dst []int64, d driver.Demand) []int64 {
			return append(dst, int64(d.Algorithm.(vandal).junk[0]))
		}}
}

// vandalize writes a corrupt state of a for key, in place of what it has.
func (e *env) vandalize(key string, a driver.Algorithm) {
	for _, junk := range []string{"?", "\xff", "\x00"} {
		if _, keep, _ := take(key, a, 1).Step([]byte(junk), start); keep < 0 {
			e.do(reset(key, a)) // a server may keep it as another type
			e.do(take(key, vandal{a, junk}, 1))
			return
		}
	}
	e.fatalf("the algorithm %q accepts any byte as its state", a.Name())
}
