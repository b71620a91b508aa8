package conformance

import (
	"bytes"
	"runtime/debug"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

var bytesRules = []rule{
	{name: "step/own-bytes",
		says: "Step may write into state only if it returns keep > 0: then next may reuse its " +
			"array, and the store must not use state again. Pass a copy of bytes that must not " +
			"be overwritten, such as those of a file that a database maps into memory.",
		check: checkOwnBytes},
}

// scribbling is an algorithm that writes into its state whenever it may, and notes the first fault.
type scribbling struct {
	driver.Algorithm
	fault *firstFault
}

type firstFault struct {
	mu  sync.Mutex
	err error
}

func (s scribbling) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	d.Algorithm = s.Algorithm
	next, keep, res := s.Algorithm.Step(bytes.Clone(state), now, d)
	if keep > 0 {
		s.scribble(state)
	}
	return next, keep, res
}

func (s scribbling) scribble(state []byte) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			s.fault.mu.Lock()
			defer s.fault.mu.Unlock()
			if s.fault.err == nil {
				s.fault.err = panicked(v)
			}
		}
	}()
	for i := range state {
		state[i] ^= 0xff
	}
}

func (s scribbling) Script() driver.Script { return scriptOf(s.Algorithm) }

// checkOwnBytes makes takes on so many keys that a database uses several pages.
func checkOwnBytes(e *env) {
	fault := new(firstFault)
	a := scribbling{e.alg(5), fault}
	keys := make([]string, 64)
	for i := range keys {
		keys[i] = e.key()
	}
	for want := int64(4); want >= 0; want-- {
		for _, key := range keys {
			res := e.admit(take(key, a, 1))
			if fault.err != nil {
				e.fatalf("a Step wrote into its state: %w", fault.err)
			}
			if res.Remaining != want {
				e.fatalf("Remaining is %d after a Step that wrote into its state, want %d",
					res.Remaining, want)
			}
		}
		e.clock.add(time.Second)
	}
	for _, key := range keys {
		e.refuse(take(key, a, 1))
	}
}
