package main

import (
	"bytes"
	"testing"
	"time"
)

func TestMostInWindow(t *testing.T) {
	const window = 10
	call := func(at, reserved, used int64, ended bool) event {
		return event{At: at, Until: at, Reserved: reserved, Used: used, Ended: ended}
	}
	calls := []event{
		call(1, 5, 0, false), call(3, 5, 3, true), call(11, 4, 9, true), call(12, 1, 1, true),
	}
	// The first call was killed; the others charge 3, 4 and 1.
	if most := mostInWindow(calls, window); most != 8 {
		t.Errorf("the fullest window held %d, want 8", most)
	}
	if most := mostInWindow(calls, window-2); most != 5 {
		t.Errorf("the fullest shorter window held %d, want 5", most)
	}
	if most := mostInWindow(nil, window); most != 0 {
		t.Errorf("without a call the fullest window held %d, want 0", most)
	}
	var book ledger
	for i, e := range calls {
		e.Call = uint64(i)
		book.add(nil, e)
	}
	var out bytes.Buffer
	if err := book.judge(config{Tokens: 7, Window: 10 * time.Microsecond}, &out); err == nil {
		t.Errorf("no error for a window of 8 tokens and a budget of 7:\n%s", &out)
	}
}
