package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

var bytesRules = []rule{
	{name: "step/own-bytes",
		says: "Step may write into state only if it returns keep > 0: then next may reuse its " +
			"array, and the store must not use state again. Pass a copy of bytes that must not " +
			"be overwritten, such as those of a file that a database maps into memory. " + saysSafe,
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

func (f *firstFault) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
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
			s.fault.note(panicked(v))
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
	checkOwnBuffer(e)
}

// meeting is an algorithm whose Step waits a little until another runs, on another state. Neither
// state may change meanwhile.
type meeting struct {
	driver.Algorithm
	met   chan struct{}
	fault *firstFault
}

func (m meeting) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	before := bytes.Clone(state)
	select {
	case m.met <- struct{}{}:
	case <-m.met:
	case <-time.After(time.Millisecond):
	}
	if !bytes.Equal(state, before) {
		m.fault.note(errors.New("the bytes of a state changed while its Step ran: calls on " +
			"different keys share a buffer"))
	}
	d.Algorithm = m.Algorithm
	return m.Algorithm.Step(before, now, d)
}

func (m meeting) Script() driver.Script { return scriptOf(m.Algorithm) }

// checkOwnBuffer makes peeks and takes on different keys at once.
func checkOwnBuffer(e *env) {
	const goroutines, most = 8, 1000
	a := meeting{e.alg(most), make(chan struct{}), new(firstFault)}
	keys := make([]string, goroutines)
	for g := range keys {
		keys[g] = e.key()
	}
	e.together(goroutines, func(g int) error {
		left := int64(most)
		for i := range 24 {
			d := take(keys[g], a, int64(g)+1)
			if i%8 > 0 {
				d.Op = driver.OpPeek
			} else {
				left -= d.N
			}
			if res, err := e.store.Take(e.ctx, d); err != nil {
				return err
			} else if res.Remaining != left {
				return fmt.Errorf("%v returned %+v, want %d left", d.Op, res, left)
			}
		}
		return nil
	})
	if a.fault.err != nil {
		e.fatalf("%w", a.fault.err)
	}
}
