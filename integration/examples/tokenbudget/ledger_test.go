package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	call := func(at, reserved, used int64, settled bool) event {
		return event{At: at, Until: at, Reserved: reserved, Used: used, Settled: settled}
	}
	calls := []event{
		call(1, 500, 0, false), call(3, 500, 300, true), call(11, 400, 900, true),
		call(12, 100, 100, true), call(13, 100, 100, false),
	}
	// The first call was killed, and the last perhaps before it was settled. The others charge 300,
	// 400 and 100 tokens within their estimates, and 13 cents, 5 of which are debt.
	var book ledger
	for i, e := range calls {
		e.Call = uint64(i)
		book.add(nil, e)
	}
	fits := config{Tokens: 800, Cents: 9, Window: 10 * time.Microsecond}
	for _, tt := range []struct {
		name  string
		c     config
		spent int64
		wrong string
	}{
		{"as used", fits, 13, ""},
		{"all that may be settled", fits, 14, ""},
		{"a window", config{Tokens: 799, Cents: 9, Window: fits.Window}, 13, "a window held 800"},
		{"a shorter window", config{Tokens: 500, Cents: 9, Window: 8 * time.Microsecond}, 13, ""},
		{"the day", config{Tokens: 800, Cents: 7, Window: fits.Window}, 13, "a debt of 5"},
		{"charged twice", fits, 15, "not the 13 to 14"},
		{"not charged", fits, 12, "not the 13 to 14"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			err := book.judge(tt.c, tt.spent, &out)
			if (err == nil) != (tt.wrong == "") || err != nil &&
				!strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("got %v, want %q\n%s", err, tt.wrong, &out)
			}
		})
	}
}
