package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
)

// A ledger holds the events of all calls of all processes. The zero value is empty.
type ledger struct {
	mu        sync.Mutex
	calls     map[entryKey]event
	undecided int    // demands that the store left undecided
	err       string // error of the last of them
}

type entryKey struct {
	process *process
	call    uint64
}

func (l *ledger) add(p *process, e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Err != "" {
		l.undecided++
		l.err = e.Err
		return
	}
	if l.calls == nil {
		l.calls = make(map[entryKey]event)
	}
	l.calls[entryKey{p, e.Call}] = e
}

// inFlight returns the number of calls of p in flight and the tokens that they have reserved.
func (l *ledger) inFlight(p *process) (calls int, tokens int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, e := range l.calls {
		if key.process == p && !e.Ended {
			calls++
			tokens += e.Reserved
		}
	}
	return calls, tokens
}

// judge writes what was used, and returns an error if a window held more than the budget.
//
// The budget bounds what was reserved and then used. What a call used beyond its estimate is known
// only when it ends: it is recorded as debt, which causes refusals until it leaves the window. What
// a killed process held is free after its time-out, so its calls do not count.
func (l *ledger) judge(c config, out io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := slices.SortedFunc(maps.Values(l.calls),
		func(a, b event) int { return cmp.Compare(a.Until, b.Until) })
	var used, beyond int64
	for _, e := range calls {
		used += e.Used
		if e.Ended {
			beyond += max(0, e.Used-e.Reserved)
		}
	}
	fmt.Fprintf(out, "%d calls used %d tokens, %d of them beyond their estimates\n",
		len(calls), used, beyond)
	if l.undecided > 0 {
		fmt.Fprintf(out, "%d demands were undecided, such as: %s\n", l.undecided, l.err)
	}
	most := mostInWindow(calls, c.Window.Microseconds())
	fmt.Fprintf(out, "the fullest window held %d of %d tokens\n", most, c.Tokens)
	if most > c.Tokens {
		return fmt.Errorf("a window held %d tokens, more than the budget of %d", most, c.Tokens)
	}
	return nil
}

// mostInWindow returns the most tokens that any window is certain to have held of what calls had
// reserved and then used: the store has decided a call between its At and its Until.
func mostInWindow(calls []event, window int64) (most int64) {
	for i, last := range calls {
		var sum int64
		for _, e := range calls[:i+1] {
			if e.At > last.Until-window {
				sum += e.charged()
			}
		}
		most = max(most, sum)
	}
	return most
}

// charged returns the part of the reservation that is recorded when the call has ended.
func (e event) charged() int64 { return min(e.Reserved, e.Used) }
