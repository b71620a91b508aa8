package lua

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

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// other is an algorithm with another script and no args.
type other struct{ algorithm.Log }

func (other) Script() driver.Script {
	return driver.Script{Name: "an", Source: "local function step() end",
		Args: func(dst []int64, _ driver.Demand) []int64 { return dst }}
}

// scriptless is an algorithm that only Go can run.
type scriptless struct{ algorithm.Log }

func (scriptless) Script() driver.Script { return driver.Script{} }

// packed is the reply for one demand of several.
func packed(kind, remaining, retry, reset, units int64) string {
	b := appendInt(nil, kind|remaining, 6)
	for _, v := range []int64{retry, reset, units} {
		b = appendInt(b, v, replyInt)
	}
	return string(b)
}

// hexOf returns values, each with its number of bytes, as hexadecimal digits.
func hexOf(valuesAndBytes ...int64) string {
	var b strings.Builder
	for i := 0; i < len(valuesAndBytes); i += 2 {
		fmt.Fprintf(&b, "%0*x", int(2*valuesAndBytes[i+1]), valuesAndBytes[i])
	}
	return b.String()
}

func TestCall(t *testing.T) {
	knowNone(t)
	minute, hour := algorithm.SlidingLog(driver.PerMinute("minute", 2)),
		algorithm.SlidingLog(driver.PerHour("hour", 9)).WithResolution(time.Second)
	var c Run
	for range 2 { // a Run forgets at Begin
		c.Begin(1_790_000_000_000_000)
		groups := []struct {
			keys []string
			ds   []driver.Demand
		}{
			{[]string{"k1", "k2"}, []driver.Demand{{Key: "k", Algorithm: minute, N: 1},
				{Key: "k", Algorithm: hour, Op: driver.OpPeek, N: 2}}},
			{[]string{"k1"}, []driver.Demand{{Key: "k", Algorithm: other{minute},
				Op: driver.OpForce, N: 3, At: 1_780_000_000_000_000}}},
			{[]string{"k2"},
				[]driver.Demand{{Key: "k", Algorithm: other{hour},
					Op: driver.OpReset, N: -1}}},
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
		want := []string{ // now, 8·n + op, at, key, step, more; args
			hexOf(now, 7, 8, 7, 0, 7, 1, 4, 1, 1, 1, 1, 2, 7, 60_000_000, 7),
			hexOf(now, 7, 17, 7, 0, 7, 2, 4, 1, 1, 0, 1, 9, 7, 3_600_000_000, 7, 1_000_000, 7),
			hexOf(now, 7, 26, 7, 1_780_000_000_000_000, 7, 1, 4, 2, 1, 0, 1),
			hexOf(now, 7, 3, 7, 0, 7, 2, 4, 2, 1, 0, 1),
		}
		for i, arg := range c.Args() {
			if got := fmt.Sprintf("%x", arg); got != want[i] {
				t.Errorf("arg %d is\n%s, want\n%s", i, got, want[i])
			}
		}
	}

	reply := packed(0, 1, 0, 60_000_000, 7) + packed(replyRefused, 3, 5, 6, 8) +
		packed(replyCorrupt, 0, 0, 0, 0) + packed(0, 9, 0, 0, 9)
	out := make([]driver.Result, 2)
	if err := c.Results(reply, 0, out); err != nil {
		t.Fatal(err)
	}
	if want := (driver.Result{Allowed: true, Limit: minute.Limit(), Remaining: 1,
		ResetAfter: time.Minute}); out[0] != want {
		t.Errorf("got %+v, want %+v", out[0], want)
	}
	if want := (driver.Result{Limit: hour.Limit(), Remaining: 3, RetryAfter: 5 * time.Microsecond,
		ResetAfter: 6 * time.Microsecond}); out[1] != want {
		t.Errorf("got %+v, want %+v", out[1], want)
	}
	if err := c.Results(reply, 1, out[:1]); !errors.Is(err, driver.ErrCorruptState) {
		t.Errorf("corrupt state: %v", err)
	}
	c.Begin(0)
	if err := c.Add([]string{"k1"},
		[]driver.Demand{{Key: "k", Algorithm: minute, N: 1}}); err != nil {
		t.Fatal(err)
	}
	short := packed(0, 1, 0, 60_000_000, 7)
	if err := c.Results(short[:6]+short[6+replyInt:], 0, out[:1]); err != nil ||
		out[0] != (driver.Result{Allowed: true, Limit: minute.Limit(), Remaining: 1, Units: 1,
			ResetAfter: time.Minute}) {
		t.Errorf("one admitted demand: %v, %+v", err, out[0])
	}
	if err := c.Results(short[1:], 0, out[:1]); !errors.Is(err, driver.ErrOutcomeUnknown) {
		t.Errorf("short reply: %v", err)
	}
	if err := c.Results(reply[:replySize-1], 0, out[:1]); !errors.Is(err,
		driver.ErrOutcomeUnknown) {
		t.Errorf("short reply: %v", err)
	}
}

// unsummed is the log with a script without Sums.
type unsummed struct{ algorithm.Log }

func (u unsummed) Script() driver.Script {
	script := u.Log.Script()
	script.Name, script.Sums = "unsummed", false
	args := script.Args
	script.Args = func(dst []int64, d driver.Demand) []int64 {
		d.Algorithm = d.Algorithm.(unsummed).Log
		return args(dst, d)
	}
	return script
}

func TestCallOfSame(t *testing.T) {
	knowNone(t)
	const now = 1_790_000_000_000_000
	minute := algorithm.SlidingLog(driver.PerMinute("minute", 100))
	take := driver.Demand{Key: "k", Algorithm: minute, N: 3, At: 5}
	peek, plain := take, take
	peek.Op, plain.Algorithm = driver.OpPeek, unsummed{minute}
	var c Run
	add := func(key string, d driver.Demand, times int) {
		t.Helper()
		if err := c.AddSame(key, d, times); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		c.Begin(now)
		add("k1", take, 1000)
		if err := c.Add([]string{"k2", "k1"}, []driver.Demand{take, peek}); err != nil {
			t.Fatal(err)
		}
		add("k2", peek, 2)
		add("k2", plain, 2)
		add("k3", take, 1)
		add("k1", take, 3)
	}
	log := []int64{100, 7, 60_000_000, 7}
	want := []string{
		hexOf(append([]int64{now, 7, 24, 7, 999, 7, 1, 4, 1, 1, 0, 1}, log...)...),
		hexOf(append([]int64{now, 7, 24, 7, 0, 7, 2, 4, 1, 1, 1, 1}, log...)...),
		hexOf(append([]int64{now, 7, 25, 7, 5, 7, 1, 4, 1, 1, 0, 1}, log...)...),
		hexOf(append([]int64{now, 7, 25, 7, 5, 7, 2, 4, 1, 1, 0, 1}, log...)...),
		hexOf(append([]int64{now, 7, 25, 7, 5, 7, 2, 4, 1, 1, 0, 1}, log...)...),
		hexOf(append([]int64{now, 7, 24, 7, 0, 7, 2, 4, 2, 1, 0, 1}, log...)...),
		hexOf(append([]int64{now, 7, 24, 7, 0, 7, 2, 4, 2, 1, 0, 1}, log...)...),
		hexOf(append([]int64{now, 7, 24, 7, 0, 7, 3, 4, 1, 1, 0, 1}, log...)...),
		hexOf(append([]int64{now, 7, 24, 7, 2, 7, 1, 4, 1, 1, 0, 1}, log...)...),
	}
	args := c.Args()
	if len(args) != len(want) {
		t.Fatalf("%d args, want %d", len(args), len(want))
	}
	for i, arg := range args {
		if got := fmt.Sprintf("%x", arg); got != want[i] {
			t.Errorf("arg %d is\n%s, want\n%s", i, got, want[i])
		}
	}
	if keys := c.Keys(); !slices.Equal(keys, []string{"k1", "k2", "k3"}) {
		t.Errorf("keys %q", keys)
	}

	count := func(n int64) string { return string(appendInt(nil, n, replyInt)) }
	reply := count(1) + packed(0, 40, 0, 60, 7) + count(12) + packed(0, 1, 0, 61, 8) + count(987) +
		packed(replyRefused, 1, 9, 61, 8) +
		packed(replyRefused, 1, 2, 3, 4) + packed(0, 5, 0, 6, 7) +
		packed(0, 11, 0, 60, 7) + packed(0, 12, 0, 60, 7) +
		packed(0, 13, 0, 60, 7) + packed(replyRefused, 14, 15, 60, 7) +
		packed(0, 16, 0, 60, 7) +
		count(2) + packed(0, 17, 5, 60, 7) + count(1) + packed(replyCorrupt, 0, 0, 0, 0)
	peeked := func(remaining, reset int64) driver.Result {
		return driver.Result{Allowed: true, Limit: minute.Limit(), Remaining: remaining,
			ResetAfter: time.Duration(reset) * time.Microsecond}
	}
	allowed := func(remaining, reset int64) driver.Result {
		res := peeked(remaining, reset)
		res.Units = 3
		return res
	}
	refused := func(remaining, retry, reset int64) driver.Result {
		res := peeked(remaining, reset)
		res.Allowed, res.RetryAfter = false, time.Duration(retry)*time.Microsecond
		return res
	}
	thousand := []driver.Result{allowed(40, 60)}
	for i := range int64(12) {
		thousand = append(thousand, allowed(34-3*i, 61))
	}
	for len(thousand) < 1000 {
		thousand = append(thousand, refused(1, 9, 61))
	}
	results := [][]driver.Result{
		thousand,
		{refused(1, 2, 3), peeked(5, 6)},
		{peeked(11, 60), peeked(12, 60)},
		{allowed(13, 60), refused(14, 15, 60)},
		{allowed(16, 60)},
		{allowed(20, 55), allowed(17, 60), {}},
	}
	for _, group := range []int{5, 1, 0, 2, 3, 4} {
		out := make([]driver.Result, len(results[group]))
		for i := range out {
			out[i].Limit.Max = 1 // as if it had been used before
		}
		err := c.Results(reply, group, out)
		if corrupt := group == 5; errors.Is(err, driver.ErrCorruptState) != corrupt ||
			err != nil && !corrupt {
			t.Errorf("group %d: %v", group, err)
		}
		for i := range out {
			if out[i] != results[group][i] {
				t.Errorf("group %d, result %d: got %+v, want %+v",
					group, i, out[i], results[group][i])
			}
		}
	}

	for grows, want := range map[int64]error{30: nil, 31: driver.ErrOutcomeUnknown,
		1<<56 - 1: driver.ErrOutcomeUnknown} {
		err := c.Results(reply[:len(reply)-2*(replyInt+replySize)]+
			count(3)+packed(0, 17, grows, 60, 7), 5, make([]driver.Result, 3))
		if !errors.Is(err, want) {
			t.Errorf("ResetAfter grows to 60 by %d: got %v, want %v", grows, err, want)
		}
	}

	single := packed(0, 1, 0, 60, 7)
	for name, reply := range map[string]string{
		"empty":        "",
		"short":        reply[:len(reply)-1],
		"long":         reply + " ",
		"too few":      count(999) + reply[replyInt:],
		"too many":     count(1001) + reply[replyInt:],
		"none":         count(0) + reply[replyInt:],
		"without":      strings.Repeat(single, 9),
		"only a count": count(1),
	} {
		if err := c.Results(reply, 1, make([]driver.Result, 2)); !errors.Is(err,
			driver.ErrOutcomeUnknown) {
			t.Errorf("reply %s: %v", name, err)
		}
	}

	many := c.Program()
	c.Begin(now)
	add("k", take, 1)
	one := c.Program()
	if out := make([]driver.Result, 1); c.Results(single, 0, out) != nil ||
		out[0] != allowed(1, 60) {
		t.Errorf("once: %+v", out[0])
	}
	c.Begin(now)
	add("k", take, 2)
	if several := c.Program(); several == one || several == many {
		t.Error("two takes run the program of one, or that of other scripts")
	}
	if err := c.AddSame("k", take, 0); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("0 times: %v", err)
	}
	take.Algorithm = scriptless{}
	if err := c.AddSame("k", take, 2); !errors.Is(err, driver.ErrNoScript) {
		t.Errorf("without script: %v", err)
	}
	if len(c.Args()) != 1 {
		t.Errorf("added %q", c.Args())
	}
}

// TestCallOfManyKeys: each demand names its own key, however many there are.
func TestCallOfManyKeys(t *testing.T) {
	const n = 1<<16 + 10
	keys, ds := make([]string, n), make([]driver.Demand, n)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
		ds[i] = driver.Demand{Key: keys[i],
			Algorithm: algorithm.SlidingLog(driver.PerMinute("minute", 2)), N: 1}
	}
	var c Run
	c.Begin(0)
	if err := c.Add(keys, ds); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool, n)
	for _, arg := range c.Args() {
		seen[arg[21:25]] = true
	}
	if len(c.Keys()) != n || len(seen) != n {
		t.Errorf("%d keys and %d indexes of them, want %d", len(c.Keys()), len(seen), n)
	}
}

func TestCallWithoutScript(t *testing.T) {
	var c Run
	c.Begin(0)
	d := driver.Demand{Key: "k",
		Algorithm: algorithm.SlidingLog(driver.PerMinute("minute", 2)), N: 1}
	bad := d
	bad.Algorithm = scriptless{}
	err := c.Add([]string{"a", "b"}, []driver.Demand{d, bad})
	if !errors.Is(err, driver.ErrNoScript) || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	if len(c.Keys()) != 0 || len(c.Args()) != 0 {
		t.Errorf("added %q, %q", c.Keys(), c.Args())
	}
}

// TestProgram: the source depends on the algorithms and on whether there is one demand, not on the
// number, the order and the parameters of several.
func TestProgram(t *testing.T) {
	log := algorithm.SlidingLog(driver.PerMinute("minute", 2))
	program := func(algorithms ...driver.Algorithm) Program {
		var c Run
		c.Begin(0)
		for _, a := range algorithms {
			if err := c.Add([]string{"k"},
				[]driver.Demand{{Key: "k", Algorithm: a, N: 1}}); err != nil {
				t.Fatal(err)
			}
		}
		return c.Program()
	}
	one := program(log)
	if sum := sha1.Sum([]byte(one.Source)); one.SHA != hex.EncodeToString(sum[:]) {
		t.Errorf("SHA %s", one.SHA)
	}
	if program(log.WithResolution(time.Second)) != one ||
		program(log, log) != program(log.WithResolution(time.Second), log, log) {
		t.Error("parameters change the program")
	}
	both := program(log, other{log})
	if both == one || both != program(other{log}, log) {
		t.Error("the order of demands changes the program")
	}
}

// FuzzReply: any reply is an error of the right kind, or results within their ranges.
func FuzzReply(f *testing.F) {
	short := packed(0, 1, 0, 60_000_000, 7)
	f.Add([]byte(short[:6]+short[6+replyInt:]), uint8(0))
	f.Add([]byte(packed(replyRefused, 1, 2, 3, 4)), uint8(0))
	f.Add([]byte(packed(replyCorrupt, 0, 0, 0, 0)), uint8(0))
	f.Add([]byte(packed(0, 1, 0, 60_000_000, 7)+packed(replyRefused|replyWrote, 3, 5, 6, 8)),
		uint8(1))
	f.Add([]byte(bigEndian(2, replyInt)+packed(0, 1, 0, 60_000_000, 7)+bigEndian(1, replyInt)+
		packed(replyRefused, 0, 1, 2, 3)+short), uint8(2))
	f.Add(slices.Repeat([]byte{0xff}, replySize), uint8(0))
	f.Add(slices.Repeat([]byte{0xff}, 2*replySize), uint8(1))
	f.Add([]byte("OK"), uint8(2))
	f.Add([]byte(failedPart("ERR planted", replyWrote)), uint8(0))
	f.Add([]byte(bigEndian(1, replyInt)+packed(0, 1, 0, 60, 7)+bigEndian(2, replyInt)+
		failedPart("x", replyWrote)+short), uint8(2))
	for _, grows := range []int64{30, 31, 1<<56 - 1} {
		f.Add([]byte(bigEndian(3, replyInt)+packed(0, 1, grows, 60, 7)+short), uint8(2))
	}
	minute, hour := algorithm.SlidingLog(driver.PerMinute("minute", 2)),
		algorithm.SlidingLog(driver.PerHour("hour", 9))
	var c Run // reused, as by stores
	f.Fuzz(func(t *testing.T, bytes []byte, shape uint8) {
		reply := string(bytes)
		c.Begin(0)
		var sizes []int
		switch shape % 3 {
		case 0:
			sizes = addFuzzed(t, &c, []int{1}, minute)
		case 1:
			sizes = addFuzzed(t, &c, []int{1}, minute, hour)
		case 2:
			sizes = addFuzzed(t, &c, []int{3, 1}, minute)
		}
		for group, size := range sizes {
			out := make([]driver.Result, size)
			err := c.Results(reply, group, out)
			// results of a group with an error: some of its equal takes may have been decided
			var failed *StepError
			if err != nil && !errors.As(err, &failed) && !errors.Is(err,
				driver.ErrCorruptState) && !errors.Is(err, driver.ErrOutcomeUnknown) {
				t.Fatal(err)
			}
			for _, res := range out {
				if res != (driver.Result{}) && res.Limit.Max != 2 && res.Limit.Max != 9 ||
					res.Remaining < 0 || res.RetryAfter < 0 || res.ResetAfter < 0 || res.Units < 0 {
					t.Fatalf("%x: %+v", reply, res)
				}
				if errors.Is(err, driver.ErrOutcomeUnknown) && failed == nil && res.Allowed {
					t.Fatalf("%x: allowed beside %v", reply, err)
				}
			}
			if err == nil {
				c.Wrote(reply, group)
			}
		}
	})
}

// addFuzzed adds, for each of times, a group of one demand under each of logs, or of that many
// equal takes, and returns the groups' lengths.
func addFuzzed(t *testing.T, c *Run, times []int, logs ...algorithm.Log) (sizes []int) {
	t.Helper()
	for i, n := range times {
		keys, ds := make([]string, len(logs)), make([]driver.Demand, len(logs))
		for j, l := range logs {
			keys[j], ds[j] = fmt.Sprint(i, j), driver.Demand{Key: "k", Algorithm: l, N: 1}
		}
		err := error(nil)
		if n > 1 {
			err = c.AddSame(keys[0], ds[0], n)
			sizes = append(sizes, n)
		} else {
			err = c.Add(keys, ds)
			sizes = append(sizes, len(ds))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return sizes
}

// bigEndian is v in n bytes.
func bigEndian(v int64, n int) string { return string(appendInt(nil, v, n)) }

// TestCallOfHolds: a call with holds has their keys and IDs, reads their Units, and runs a program
// of its own; other calls run the same program as before.
func TestCallOfHolds(t *testing.T) {
	minute := algorithm.SlidingLog(driver.PerMinute("minute", 9))
	budget := algorithm.Budget(minute).WithTimeout(time.Second)
	hold := driver.Demand{Key: "k", Algorithm: budget, Op: driver.OpHold, N: 3, ID: 1<<63 | 5,
		HoldTimeout: 2 * time.Second}
	settle := driver.Demand{Key: "k", Algorithm: budget, Op: driver.OpSettle, ID: 7}
	force := driver.Demand{Key: "k", Algorithm: budget, Op: driver.OpForce, N: 2}
	var c Run
	c.Begin(1)
	if err := errors.Join(c.Add([]string{"a", "b"}, []driver.Demand{settle,
		{Key: "k", Algorithm: minute, N: 1}}),
		c.Add([]string{"c", "a"}, []driver.Demand{hold, force})); err != nil {
		t.Fatal(err)
	}
	if keys := c.Keys(); !slices.Equal(keys, []string{"a", "a:h", "b", "c", "c:h"}) {
		t.Errorf("keys %q", keys)
	}
	want := []string{ // ID, hold, unit, time-out, Max, charge; args of the log
		hexOf(1, 7, 5, 7, 0, 7, 1, 4, 8, 1, 1, 1,
			0, 7, 7, 7, 1_000_000, 7, 65536, 7, 1_000_000, 7, 9, 7, 0, 7, 9, 7, 60_000_000, 7),
		hexOf(1, 7, 8, 7, 0, 7, 3, 4, 1, 1, 0, 1, 9, 7, 60_000_000, 7),
		hexOf(1, 7, 28, 7, 0, 7, 4, 4, 8, 1, 1, 1,
			1<<7, 7, 5, 7, 2_000_000, 7, 131072, 7, 1_000_000, 7, 9, 7, 0, 7, 9, 7, 60_000_000, 7),
	}
	for i, arg := range want {
		if got := fmt.Sprintf("%x", c.Args()[i]); got != arg {
			t.Errorf("arg %d is\n%s, want\n%s", i, got, arg)
		}
	}
	reply := packed(0, 1, 0, 60, 8) + packed(0, 1, 0, 60, 7) +
		packed(replyRefused, 1, 4, 60, 0) + packed(0, 1, 0, 60, 7)
	for group, units := range [][]int64{{8, 1}, {0, 0}} {
		out := make([]driver.Result, 2)
		if err := c.Results(reply, group, out); err != nil {
			t.Fatal(err)
		}
		for i, want := range units {
			if out[i].Units != want {
				t.Errorf("group %d, result %d: %d units, want %d", group, i, out[i].Units, want)
			}
		}
	}
	for _, frame := range []*frame{oneFrame, manyFrame} {
		held := newProgram(frame, []driver.Script{budget.Script()}).Source
		plain := newProgram(frame, []driver.Script{minute.Script()}).Source
		for _, word := range []string{"ttl, id", "HSET"} {
			if !strings.Contains(held, word) || strings.Contains(plain, word) {
				t.Errorf("%q is not in the program with holds, or in that without", word)
			}
		}
		if strings.Contains(held, "--[[") || strings.Contains(plain, "--[[") {
			t.Error("a program has comments for holds")
		}
	}
}
