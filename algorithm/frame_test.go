package algorithm

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
)

// other is an algorithm with another script and no args.
type other struct{ Log }

func (other) Script() ratelimit.Script {
	return ratelimit.Script{Name: "an", Source: "local function step() end", Args: func(dst []int64, _ ratelimit.Demand) []int64 { return dst }}
}

// scriptless is an algorithm that only Go can run.
type scriptless struct{ Log }

func (scriptless) Script() ratelimit.Script { return ratelimit.Script{} }

// packed is the reply for one demand.
func packed(allowed byte, values ...int64) string {
	b := []byte{allowed}
	for _, v := range values {
		b = appendInt(b, v, replyInt)
	}
	return string(b)
}

// hexOf returns values, each with its number of bytes, as hexadecimal digits.
func hexOf(valuesAndBytes ...int) string {
	var b strings.Builder
	for i := 0; i < len(valuesAndBytes); i += 2 {
		fmt.Fprintf(&b, "%0*x", 2*valuesAndBytes[i+1], valuesAndBytes[i])
	}
	return b.String()
}

func TestCall(t *testing.T) {
	minute, hour := SlidingLog(ratelimit.PerMinute(2)), SlidingLog(ratelimit.PerHour(9)).WithResolution(time.Second)
	var c Call
	for range 2 { // a Call forgets at Begin
		c.Begin(1_790_000_000_000_000)
		groups := []struct {
			keys []string
			ds   []ratelimit.Demand
		}{
			{[]string{"k1", "k2"}, []ratelimit.Demand{{Key: "k", Algorithm: minute, N: 1}, {Key: "k", Algorithm: hour, Op: ratelimit.Look, N: 2}}},
			{[]string{"k1"}, []ratelimit.Demand{{Key: "k", Algorithm: other{minute}, Op: ratelimit.GiveBack, N: 3, At: 1_780_000_000_000_000}}},
		}
		for _, g := range groups {
			if err := c.Add(g.keys, g.ds); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.Keys(); !slices.Equal(got, []string{"k1", "k2"}) {
			t.Errorf("keys %q", got)
		}
		const now = 1_790_000_000_000_000
		want := []string{ // now, key, step, op, n, at, more; args
			hexOf(now, 7, 1, 4, 2, 1, 0, 1, 1, 6, 0, 7, 1, 1, 2, 7, 60_000_000, 7, 1, 7, 0, 7),
			hexOf(now, 7, 2, 4, 2, 1, 1, 1, 2, 6, 0, 7, 0, 1, 9, 7, 3_600_000_000, 7, 1_000_000, 7, 20, 7),
			hexOf(now, 7, 1, 4, 1, 1, 3, 1, 3, 6, 1_780_000_000_000_000, 7, 0, 1),
		}
		for i, arg := range c.Args() {
			if got := fmt.Sprintf("%x", arg); got != want[i] {
				t.Errorf("arg %d is\n%s, want\n%s", i, got, want[i])
			}
		}
	}

	reply := packed(1, 1, 0, 60_000_000, 7) + packed(0, 3, 5, 6, 8) + packed(2, 0, 0, 0, 0)
	out := make([]ratelimit.Result, 2)
	if err := c.Results(reply, 0, out); err != nil {
		t.Fatal(err)
	}
	if want := (ratelimit.Result{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: time.Minute, At: 7}); out[0] != want {
		t.Errorf("got %+v, want %+v", out[0], want)
	}
	if want := (ratelimit.Result{Limit: 9, Remaining: 3, RetryAfter: 5 * time.Microsecond, ResetAfter: 6 * time.Microsecond, At: 8}); out[1] != want {
		t.Errorf("got %+v, want %+v", out[1], want)
	}
	if err := c.Results(reply, 1, out[:1]); !errors.Is(err, ratelimit.ErrCorruptState) {
		t.Errorf("corrupt state: %v", err)
	}
	if err := c.Results(reply[:replySize], 0, out); !errors.Is(err, ratelimit.ErrOutcomeUnknown) {
		t.Errorf("short reply: %v", err)
	}
}

// TestCallOfManyKeys: each demand names its own key, however many there are.
func TestCallOfManyKeys(t *testing.T) {
	const n = 1<<16 + 10
	keys, ds := make([]string, n), make([]ratelimit.Demand, n)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
		ds[i] = ratelimit.Demand{Key: keys[i], Algorithm: SlidingLog(ratelimit.PerMinute(2)), N: 1}
	}
	var c Call
	c.Begin(0)
	if err := c.Add(keys, ds); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool, n)
	for _, arg := range c.Args() {
		seen[arg[7:11]] = true
	}
	if len(c.Keys()) != n || len(seen) != n {
		t.Errorf("%d keys and %d indexes of them, want %d", len(c.Keys()), len(seen), n)
	}
}

func TestCallWithoutScript(t *testing.T) {
	var c Call
	c.Begin(0)
	d := ratelimit.Demand{Key: "k", Algorithm: SlidingLog(ratelimit.PerMinute(2)), N: 1}
	bad := d
	bad.Algorithm = scriptless{}
	err := c.Add([]string{"a", "b"}, []ratelimit.Demand{d, bad})
	if !errors.Is(err, ratelimit.ErrNoScript) || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	if len(c.Keys()) != 0 || len(c.Args()) != 0 {
		t.Errorf("added %q, %q", c.Keys(), c.Args())
	}
}

// TestProgram: the text depends on which algorithms there are, not on how many demands or in which order.
func TestProgram(t *testing.T) {
	log := SlidingLog(ratelimit.PerMinute(2))
	program := func(algorithms ...ratelimit.Algorithm) Program {
		var c Call
		c.Begin(0)
		for _, a := range algorithms {
			if err := c.Add([]string{"k"}, []ratelimit.Demand{{Key: "k", Algorithm: a, N: 1}}); err != nil {
				t.Fatal(err)
			}
		}
		return c.Program()
	}
	one := program(log)
	if sum := sha1.Sum([]byte(one.Source)); one.SHA != hex.EncodeToString(sum[:]) {
		t.Errorf("SHA %s", one.SHA)
	}
	if program(log, log.WithResolution(time.Second)) != one {
		t.Error("parameters change the program")
	}
	both := program(log, other{log})
	if both == one || both != program(other{log}, log) {
		t.Error("the order of demands changes the program")
	}
}
