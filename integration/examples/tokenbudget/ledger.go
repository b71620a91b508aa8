package main

import (
	"cmp"
	"errors"
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
		if key.process == p && !e.Settled {
			calls++
			tokens += e.Reserved
		}
	}
	return calls, tokens
}

// judge writes what was used, and returns an error if a window held more than its budget, or if not
// exactly what was used is charged. spent has the cents that are recorded.
//
// A budget bounds what was reserved and then used. What a call used beyond its estimate is known
// only when it ends: it is recorded as debt, which causes refusals until it leaves the window. What
// a killed process held and had not settled is not charged.
func (l *ledger) judge(c config, spent int64, out io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := slices.SortedFunc(maps.Values(l.calls),
		func(a, b event) int { return cmp.Compare(a.Until, b.Until) })
	var used, least, most, debt int64 // in tokens, and the others in cents
	for _, e := range calls {
		used += e.Used
		most += price(e.Used)
		debt += max(0, price(e.Used)-price(e.Reserved))
		if e.Settled {
			least += price(e.Used)
		}
	}
	fmt.Fprintf(out, "%d calls used %d tokens for %d to %d cents, %d of them beyond estimates\n",
		len(calls), used, least, most, debt)
	if l.undecided > 0 {
		fmt.Fprintf(out, "%d demands were undecided, such as: %s\n", l.undecided, l.err)
	}
	fullest := mostInWindow(calls, c.Window.Microseconds())
	fmt.Fprintf(out, "the fullest window held %d of %d tokens, and %d of %d cents are charged\n",
		fullest, c.Tokens, spent, c.Cents)
	var errs []error
	if fullest > c.Tokens {
		errs = append(errs, fmt.Errorf("a window held %d tokens, more than the budget of %d",
			fullest, c.Tokens))
	}
	if spent > c.Cents+debt {
		errs = append(errs, fmt.Errorf("%d cents are charged, more than the budget of %d and a "+
			"debt of %d", spent, c.Cents, debt))
	}
	if spent < least || spent > most {
		errs = append(errs, fmt.Errorf("%d cents are charged, not the %d to %d that were used",
			spent, least, most))
	}
	return errors.Join(errs...)
}

// mostInWindow returns the most tokens that any window is certain to have held of what calls had
// reserved and then used: the store has decided a call between its At and its Until.
func mostInWindow(calls []event, window int64) (most int64) {
	for i, last := range calls {
		var sum int64
		for _, e := range calls[:i+1] {
			if e.At > last.Until-window && e.Settled {
				sum += min(e.Reserved, e.Used)
			}
		}
		most = max(most, sum)
	}
	return most
}
