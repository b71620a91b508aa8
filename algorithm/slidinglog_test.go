package algorithm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

const second = int64(time.Second / time.Microsecond)

// epoch is a stamp of the year 2026.
const epoch = int64(1_790_000_000) * second

func take(n int64) driver.Demand { return driver.Demand{Op: driver.OpTake, N: n} }
func peek(n int64) driver.Demand { return driver.Demand{Op: driver.OpPeek, N: n} }

// scripted is one line of a history: a step on the state that the previous line left.
type scripted struct {
	at        float64 // seconds after epoch
	demand    driver.Demand
	allowed   bool
	remaining int64
	retry     time.Duration
	reset     time.Duration
}

func play(t *testing.T, l Log, lines []scripted) {
	t.Helper()
	var state []byte
	for i, line := range lines {
		now := epoch + int64(line.at*float64(second))
		next, keep, res := l.Step(state, now, line.demand)
		if keep != 0 {
			state = next
		}
		if res.Allowed != line.allowed || res.Remaining != line.remaining ||
			res.RetryAfter != line.retry || res.ResetAfter != line.reset {
			t.Errorf("line %d: %v %d at %v s: got allowed %v, remaining %d, retry %v, reset %v; "+
				"want %v, %d, %v, %v",
				i, line.demand.Op, line.demand.N, line.at, res.Allowed, res.Remaining,
				res.RetryAfter, res.ResetAfter,
				line.allowed, line.remaining, line.retry, line.reset)
		}
	}
}

func TestSlidingLog(t *testing.T) {
	const s = time.Second
	force := func(n int64) driver.Demand { return driver.Demand{Op: driver.OpForce, N: n} }
	forceAt := func(seconds float64, n int64) driver.Demand {
		return driver.Demand{Op: driver.OpForce, N: n, At: epoch + int64(seconds*float64(second))}
	}
	reset := driver.Demand{Op: driver.OpReset}
	l := SlidingLog(driver.Limit{Max: 3, Window: 10 * s})
	for _, tc := range []struct {
		name  string
		log   Log
		lines []scripted
	}{
		{"admits Max in a window and no more", l, []scripted{
			{0, take(1), true, 2, 0, 10 * s},
			{1, take(1), true, 1, 0, 10 * s},
			{2, take(1), true, 0, 0, 10 * s},
			{3, take(1), false, 0, 7 * s, 9 * s},
			{9.999999, take(1), false, 0, time.Microsecond, 2*s + time.Microsecond},
			{10, take(1), true, 0, 0, 10 * s},
			{10, take(1), false, 0, s, 10 * s},
		}},
		{"weights wait for enough units to leave", l, []scripted{
			{0, take(1), true, 2, 0, 10 * s},
			{4, take(2), true, 0, 0, 10 * s},
			{5, take(1), false, 0, 5 * s, 9 * s},
			{5, take(2), false, 0, 9 * s, 9 * s},
			{10, take(2), false, 1, 4 * s, 4 * s},
			{10, take(1), true, 0, 0, 10 * s},
		}},
		{"a peek takes nothing", l, []scripted{
			{0, peek(3), true, 3, 0, 0},
			{0, take(2), true, 1, 0, 10 * s},
			{1, peek(1), true, 1, 0, 9 * s},
			{1, peek(2), false, 1, 9 * s, 9 * s},
			{1, take(1), true, 0, 0, 10 * s},
		}},
		{"force exceeds and is counted", l, []scripted{
			{0, force(5), true, 0, 0, 10 * s},
			{1, take(1), false, 0, 9 * s, 9 * s},
			{1, force(1), true, 0, 0, 10 * s},
			{10, take(3), false, 2, s, s},
		}},
		{"force at an instant counts from the first record after it", l, []scripted{
			{0, take(1), true, 2, 0, 10 * s},
			{2, take(1), true, 1, 0, 10 * s},
			{3, forceAt(1, 1), true, 0, 0, 9 * s},
			{11, take(3), false, 1, s, s},
			{12, take(1), true, 2, 0, 10 * s},
			{13, forceAt(12.5, 2), true, 0, 0, 10 * s},
			{22, take(2), false, 1, s, s},
		}},
		{"reset forgets", l, []scripted{
			{0, take(3), true, 0, 0, 10 * s},
			{1, reset, true, 3, 0, 0},
			{1, take(3), true, 0, 0, 10 * s},
		}},
		{"a step back holds what the newest stamp forbids", l, []scripted{
			{0, take(2), true, 1, 0, 10 * s},
			{5, take(1), true, 0, 0, 10 * s},
			{1, take(1), false, 0, 9 * s, 14 * s},
			{10, take(1), true, 1, 0, 10 * s},
		}},
		{"a step back by more than a window delays by one window", l, []scripted{
			{0, take(2), true, 1, 0, 10 * s},
			{5, take(1), true, 0, 0, 10 * s},
			{-3600, take(1), false, 0, 5 * s, 10 * s},
			{-3595, take(1), true, 1, 0, 10 * s},
			{-3590, take(2), true, 0, 0, 10 * s},
		}},
		{"resolution frees late and never early", l.WithResolution(2 * s), []scripted{
			{0.5, take(1), true, 2, 0, 11500 * time.Millisecond},
			{1.5, take(1), true, 1, 0, 10500 * time.Millisecond},
			{2, take(1), true, 0, 0, 10 * s},
			{11.9, take(1), false, 0, 100 * time.Millisecond, 100 * time.Millisecond},
			{12, take(3), true, 0, 0, 10 * s},
		}},
		{"what a coarse admission no longer counts, a clock that steps back does",
			l.WithResolution(s), []scripted{
				{1, take(1), true, 2, 0, 10 * s},
				{2, take(1), true, 1, 0, 10 * s},
				{11, take(1), true, 1, 0, 10 * s},
				{10.5, take(1), false, 0, 500 * time.Millisecond, 10500 * time.Millisecond},
			}},
		{"a step forward empties", l, []scripted{
			{0, take(3), true, 0, 0, 10 * s},
			{3600, take(3), true, 0, 0, 10 * s},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { play(t, tc.log, tc.lines) })
	}
}

// TestLogString: messages about a demand show its limit and not a handle.
func TestLogString(t *testing.T) {
	log := SlidingLog(driver.PerMinute("login", 60))
	for _, tt := range []struct {
		log  Log
		want string
	}{
		{log, "login=60/1m0s"},
		{log.WithResolution(time.Second), "login=60/1m0s with resolution 1s"},
		{Log{}, "0/0s"},
	} {
		got := fmt.Sprintf("%v", driver.Demand{Key: "k", Algorithm: tt.log, N: 1})
		if want := "{k " + tt.want + " "; !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want it to begin with %q", got, want)
		}
	}
}

func TestSlidingLogValidate(t *testing.T) {
	good := driver.PerMinute("minute", 60)
	for _, tc := range []struct {
		log Log
		ok  bool
	}{
		{SlidingLog(good), true},
		{SlidingLog(good).WithResolution(time.Minute), true},
		{SlidingLog(good).WithResolution(0), true},
		{SlidingLog(good).WithResolution(-1), false},
		{SlidingLog(good).WithResolution(time.Nanosecond), false},
		{SlidingLog(good).WithResolution(1500 * time.Nanosecond), false},
		{SlidingLog(good).WithResolution(time.Minute + 1000), false},
		{SlidingLog(driver.PerMinute("minute", 0)), false},
		{Log{}, false},
	} {
		err := tc.log.Validate()
		if (err == nil) != tc.ok || err != nil && !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%+v: got %v", tc.log, err)
		}
	}
	if SlidingLog(good) != SlidingLog(good).WithResolution(time.Microsecond) {
		t.Error("values with equal parameters differ")
	}
	other := good
	other.Name = "other"
	if SlidingLog(good) == SlidingLog(other) ||
		SlidingLog(good) == SlidingLog(good).WithResolution(time.Second) {
		t.Error("values with other parameters are equal")
	}
	if (Log{}).Limit() != (driver.Limit{}) || (Log{}).Resolution() != 0 {
		t.Error("the zero value has parameters")
	}
	if _, _, res := (Log{}).Step(nil, 0, driver.Demand{N: 1}); res.Allowed {
		t.Error("the zero value admits")
	}
	if got := SlidingLog(good).Limit(); got != good {
		t.Errorf("Limit is %+v, want %+v", got, good)
	}
}

func decodeLog(state []byte) (g logState, ok bool) {
	ok = g.decode(state)
	return g, ok
}

// history turns bytes into a history: limits, clocks and demands that change from step to step.
type history struct {
	data []byte
	now  int64
	ats  []int64
}

func (h *history) byte() byte {
	if len(h.data) == 0 {
		return 0
	}
	b := h.data[0]
	h.data = h.data[1:]
	return b
}

func (h *history) log() Log {
	b := h.byte()
	limit := driver.Limit{
		Max: []int64{1, 3, 10, 1000}[b&3],
		Window: []time.Duration{time.Second, 10 * time.Second, time.Minute,
			driver.MaxWindow}[b>>2&3],
	}
	return SlidingLog(limit).WithResolution([]time.Duration{0, 0, 0, 0, 7 * time.Microsecond,
		time.Millisecond, 300 * time.Millisecond, limit.Window}[b>>5])
}

func (h *history) tick(window int64) {
	b := h.byte()
	v := int64(h.byte())
	switch b % 8 {
	case 0:
	case 1:
		h.now += v
	case 2:
		h.now += v * 1000
	case 3:
		h.now += v * window / 64
	case 4:
		h.now += window - 1 + v%3
	case 5:
		h.now -= v * window / 200
	case 6:
		h.now -= window + v*1000
	case 7:
		h.now += v * v * second * 86400
	}
	h.now = min(max(0, h.now), 1<<52)
}

func (h *history) demand() driver.Demand {
	b := h.byte()
	d := driver.Demand{N: 1 + int64(b>>4)}
	switch b & 15 {
	case 0, 1, 2:
		d.Op = driver.OpPeek
	case 3:
		d.Op, d.N = driver.OpForce, d.N*d.N
	case 4:
		d.Op, d.N = driver.OpForce, driver.MaxUnits
	case 5, 6, 7:
		d.Op = driver.OpForce
		if len(h.ats) > 0 {
			d.At = h.ats[int(h.byte())%len(h.ats)] + int64(b>>4)%3 - 1
		}
	case 8:
		if b>>4 == 0 {
			d.Op = driver.OpReset
		}
	default:
		d.N = max(1, d.N/3)
	}
	return d
}

// FuzzStep compares Step with the naive model over whole histories, and checks the RetryAfter of
// every refusal.
func FuzzStep(f *testing.F) {
	for seed := range uint64(8) {
		data := make([]byte, 600)
		r := rand.New(rand.NewPCG(seed, 1))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h := &history{data: data, now: epoch}
		if h.byte()&7 == 0 {
			h.now = 0
		}
		l := h.log()
		var state []byte
		var model naive
		for i := 0; len(h.data) > 0; i++ {
			if h.byte()%16 == 0 {
				l = h.log()
			}
			h.tick(l.Limit().Window.Microseconds())
			d := h.demand()
			if d.Op <= driver.OpPeek {
				d.N = min(d.N, l.Limit().Max)
			}
			before := bytes.Clone(state)
			next, keep, res := l.Step(state, h.now, d)
			want, wantKeep := model.step(l, h.now, d)
			if res != want {
				t.Fatalf("step %d: %v of %d at %d under %v: got %+v, want %+v",
					i, d.Op, d.N, h.now, l.Limit(), res, want)
			}
			switch {
			case keep < 0:
				t.Fatalf("step %d: own state is corrupt", i)
			case keep == 0:
				if !bytes.Equal(state, before) {
					t.Fatalf("step %d: state changed without a write", i)
				}
			case d.Op == driver.OpReset:
				state = nil
			default:
				if keep != wantKeep {
					t.Fatalf("step %d: keep %v, want %v", i, keep, wantKeep)
				}
				state = next
			}
			if res.Allowed && d.Op <= driver.OpForce && d.Op != driver.OpPeek {
				h.ats = append(h.ats, model.newest())
			}
			if !res.Allowed {
				checkRetry(t, l, state, h.now, d, res)
			}
			compare(t, i, state, h.now, &model)
		}
	})
}

func checkRetry(
	t *testing.T, l Log, state []byte, now int64, d driver.Demand, res driver.Result,
) {
	t.Helper()
	retry := now + res.RetryAfter.Microseconds()
	if _, _, r := l.Step(bytes.Clone(state), retry, d); !r.Allowed {
		t.Fatalf("refused at %d again after RetryAfter %v", now, res.RetryAfter)
	}
	if _, _, r := l.Step(bytes.Clone(state), retry-1, d); r.Allowed {
		t.Fatalf("admitted 1µs before RetryAfter %v", res.RetryAfter)
	}
}

// compare compares the meaning of the bytes with the model's records.
func compare(t *testing.T, i int, state []byte, now int64, model *naive) {
	t.Helper()
	g, ok := decodeLog(state)
	if !ok {
		t.Fatalf("step %d: state does not decode", i)
	}
	if g.count > 0 && now >= g.newest+g.window {
		if len(model.records) > 0 && now < model.newest()+model.window {
			t.Fatalf("step %d: expired before the model", i)
		}
		return
	}
	got := recordsOf(&g)
	if g.slots > 0 {
		if newest := state[len(state)-lineEnd-recordSize:][:recordSize]; !bytes.Equal(newest,
			g.record(g.count - 1)[:]) {
			t.Fatalf("step %d: the copy of the newest record is %x, want %x",
				i, newest, g.record(g.count-1))
		}
	}
	for slot := 0; slot < g.slots; slot += block {
		i := (slot - g.head + g.slots) % g.slots
		if i+block >= g.count {
			continue
		}
		var want record
		for j := range block {
			want.units += got[i+j].units
		}
		want.stamp = got[i].stamp
		if e := g.entry(slot); e.units() != want.units || g.base+e.stamp() != want.stamp {
			t.Fatalf("step %d: the index has %d and %d for %v",
				i, e.units(), g.base+e.stamp(), want)
		}
	}
	if want := model.records; fmt.Sprint(got) != fmt.Sprint(want) || g.used != sum(got) {
		t.Fatalf("step %d: records %v used %d, want %v", i, got, g.used, want)
	}
	if g.count > 0 && g.newest != model.newest() {
		t.Fatalf("step %d: the newest stamp is %d, want %d", i, g.newest, model.newest())
	}
}

// recordsOf returns all records of a log.
func recordsOf(g *logState) (records []record) {
	for i := range g.count {
		r := g.record(i)
		records = append(records, record{g.base + r.stamp(), r.units()})
	}
	return records
}

// TestLargeLogs compares Step with the model on logs of thousands of records, which are rings with
// an index.
func TestLargeLogs(t *testing.T) {
	for seed := range depth.Of[uint64](1, 4) {
		r := rand.New(rand.NewPCG(seed, 11))
		limits := []Log{
			SlidingLog(driver.Limit{Name: "large", Max: 1000, Window: time.Minute}),
			SlidingLog(driver.Limit{Name: "large", Max: 3000, Window: time.Minute}),
			SlidingLog(driver.Limit{Name: "large", Max: 2500, Window: 50 * time.Second}).
				WithResolution(7 * time.Microsecond),
		}
		l := limits[1]
		var state []byte
		var model naive
		var ats []int64
		now, most, longer, wrapped, slots := epoch, 0, 0, 0, 0
		pace := int64(20_000) // µs between calls on average: at most 3000 a minute
		for i := range 9000 {
			switch r.IntN(4000) {
			case 0:
				now += 70 * second
			case 1:
				now -= r.Int64N(90 * second)
			case 2, 3, 4:
				now += r.Int64N(50 * second)
			case 5, 6, 7:
				l = limits[r.IntN(len(limits))]
			case 8, 9, 10:
				pace = 5000 << r.IntN(7)
			}
			if r.IntN(10) > 0 {
				now += r.Int64N(pace * 3 / 2)
			}
			d := take(1)
			switch r.IntN(20) {
			case 0:
				d = driver.Demand{Op: driver.OpPeek, N: 1 + r.Int64N(l.Limit().Max)}
			case 1:
				d.Op = driver.OpForce
				if len(ats) > 0 {
					d.At = ats[len(ats)-1-r.IntN(min(len(ats), 1+r.IntN(3000)))] + r.Int64N(3) - 1
				}
			case 4:
				d.N = 1 + r.Int64N(3)
			case 5:
				d.Op = driver.OpForce
			case 6:
				d.N = l.Limit().Max / 2
				d.Op = driver.OpPeek
			}
			next, keep, res := l.Step(state, now, d)
			want, wantKeep := model.step(l, now, d)
			if res != want || keep < 0 || keep > 0 && keep != wantKeep {
				t.Fatalf("seed %d, step %d: %v of %d at %d under %v: got %+v keep %v, want %+v "+
					"keep %v", seed, i, d.Op, d.N, now, l.Limit(), res, keep, want, wantKeep)
			}
			if keep > 0 {
				state = next
			}
			if res.Allowed && (d.Op == driver.OpTake || d.Op == driver.OpForce) {
				ats = append(ats, model.newest())
			}
			g, _ := decodeLog(state)
			if g.slots > slots && slots > 0 {
				longer++
			}
			if g.slots > 0 && g.head+g.count > g.slots {
				wrapped++
			}
			slots, most = g.slots, max(most, g.count)
			if i%32 == 0 {
				compare(t, i, state, now, &model)
			}
		}
		t.Logf("seed %d: up to %d records, %d times longer, %d steps wrapped",
			seed, most, longer, wrapped)
	}
}

// TestSmallAgain: a large log that becomes a small one gives its memory back.
func TestSmallAgain(t *testing.T) {
	l := SlidingLog(driver.PerMinute("minute", 5000))
	var state []byte
	now := epoch
	steps := func(n int, tick int64) {
		for range n {
			now += tick
			next, keep, _ := l.Step(state, now, take(1))
			if keep > 0 {
				state = next
			}
		}
	}
	steps(5000, 1000)
	if len(state) < 5000*recordSize {
		t.Fatalf("%d bytes for 5000 records", len(state))
	}
	now += 50 * second
	steps(300, second/10)
	if n := cap(state); n > 8000 {
		t.Errorf("%d bytes for 300 records", n)
	}
	steps(20, 10*second)
	if n := cap(state); n > 1000 {
		t.Errorf("%d bytes for 6 records", n)
	}
}

// TestRunOutGivesBack: a log that has expired frees a large array at the next admission and keeps a
// small one, so that small logs which expire all the time allocate nothing.
func TestRunOutGivesBack(t *testing.T) {
	l := SlidingLog(driver.PerMinute("minute", 10_000))
	for _, tt := range []struct {
		records int
		keeps   bool
	}{{1, true}, {10, true}, {25, true}, {100, false}, {10_000, false}} {
		var state []byte
		now := epoch
		for range tt.records {
			now++
			state, _, _ = l.Step(state, now, take(1))
		}
		before := cap(state)
		now += 60 * second
		state, _, res := l.Step(state, now, take(1))
		if res.Remaining != 9999 || len(state) != recordSize+trailerSize {
			t.Fatalf("%d records: %+v, %d bytes", tt.records, res, len(state))
		}
		if kept := cap(state) == before; kept != tt.keeps || cap(state) > 512 {
			t.Errorf("%d records: %d bytes of %d are kept", tt.records, cap(state), before)
		}
	}
	var state []byte
	now := epoch
	run := func() {
		now += 60 * second
		for range 10 {
			now++
			state, _, _ = l.Step(state, now, take(1))
		}
	}
	run()
	if allocs := testing.AllocsPerRun(100, run); allocs != 0 {
		t.Errorf("%v allocations for 10 calls", allocs)
	}
}

// TestExactWindow runs bursts at window edges and random traces through Step, and counts the units
// of every rolling window.
func TestExactWindow(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		limit := driver.Limit{Max: 1 + r.Int64N(60), Window: time.Second}
		l := SlidingLog(limit)
		if seed%4 == 3 {
			l = l.WithResolution(time.Duration(1+r.Int64N(100_000)) * time.Microsecond)
		}
		var state []byte
		var admitted []int64 // true times, one for each unit
		now := epoch
		for range 3000 {
			switch r.IntN(6) {
			case 0:
				now += max(0, second-now%second-r.Int64N(3))
			case 1:
				now += r.Int64N(second)
			default:
				now += r.Int64N(20_000)
			}
			n := 1 + r.Int64N(min(3, limit.Max))
			live := 0
			for i := len(admitted) - 1; i >= 0 && admitted[i] > now-second; i-- {
				live++
			}
			next, keep, res := l.Step(state, now, take(n))
			if keep > 0 {
				state = next
			}
			fits := int64(live)+n <= limit.Max
			if res.Allowed && !fits {
				t.Fatalf("seed %d: %d units admitted with %d of %d in the window",
					seed, n, live, limit.Max)
			}
			if !res.Allowed && fits && l.Resolution() == time.Microsecond {
				t.Fatalf("seed %d: %d units refused with %d of %d in the window",
					seed, n, live, limit.Max)
			}
			if res.Allowed {
				for range n {
					admitted = append(admitted, now)
				}
			}
		}
	}
}

// TestBoundedByResolution fills a log as fast as it admits: the live records stay within
// ⌈Window/Resolution⌉ + 1.
func TestBoundedByResolution(t *testing.T) {
	l := SlidingLog(driver.PerMinute("minute", 100_000)).WithResolution(600 * time.Millisecond)
	var state []byte
	now, most := epoch, 0
	for range 400_000 {
		now += 400
		if next, keep, _ := l.Step(state, now, take(1)); keep > 0 {
			state = next
		}
		most = max(most, cap(state))
		g, _ := decodeLog(state)
		if first, _ := g.expire(now - 60*second); g.count-first > 101 {
			t.Fatalf("%d live records", g.count-first)
		}
	}
	if most > 2048 {
		t.Errorf("the state took %d bytes", most)
	}
}

// TestSteadyState: a log in steady use allocates nothing, and stays within 16.5 bytes a record.
func TestSteadyState(t *testing.T) {
	l := SlidingLog(driver.PerMinute("minute", 1000))
	var state []byte
	now := epoch
	step := func() {
		now += 70_000
		next, keep, res := l.Step(state, now, take(1))
		if keep > 0 {
			state = next
		}
		if !res.Allowed {
			now += res.RetryAfter.Microseconds()
		}
	}
	for range 5000 {
		step()
	}
	if allocs := testing.AllocsPerRun(2000, step); allocs != 0 {
		t.Errorf("%v allocations a step", allocs)
	}
	if g, _ := decodeLog(state); float64(cap(state)) > 16.5*float64(g.count) {
		t.Errorf("%d bytes for %d records", cap(state), g.count)
	}
}

// TestRebase keeps a log alive for longer than an offset of 48 bits reaches.
func TestRebase(t *testing.T) {
	l := SlidingLog(driver.Limit{Max: 5, Window: driver.MaxWindow})
	year := 365 * 86400 * second
	var state []byte
	var model naive
	for i := range int64(100) {
		now := epoch + i*year/4
		next, keep, res := l.Step(state, now, take(1))
		if keep > 0 {
			state = next
		}
		if want, _ := model.step(l, now, take(1)); res != want {
			t.Fatalf("quarter %d: got %+v, want %+v", i, res, want)
		}
		compare(t, int(i), state, now, &model)
		if g, _ := decodeLog(state); g.expiry != (g.newest+g.window-g.base)>>expiryBits {
			t.Fatalf("quarter %d: expiry %d, base %d, newest %d", i, g.expiry, g.base, g.newest)
		}
	}
	if g, _ := decodeLog(state); g.base < epoch+8*year {
		t.Errorf("base %d has not moved", g.base)
	}
}

// FuzzState passes bytes to Step that it did not write: it does not panic, returns no number out of
// range, takes no more memory than a state needs, and never admits more than the limit at one time.
func FuzzState(f *testing.F) {
	l := SlidingLog(driver.PerMinute("minute", 3))
	var state []byte
	for i := range int64(4) {
		state, _, _ = l.Step(state, epoch+i*second,
			driver.Demand{Op: driver.OpForce, N: i + 1})
		f.Add(bytes.Clone(state), epoch+i, uint8(i), int64(1), epoch)
	}
	f.Add(make([]byte, trailerSize+recordSize), epoch, uint8(0), int64(1), int64(0))
	large := SlidingLog(driver.PerMinute("minute", 1000))
	for i := range int64(500) { // a line, and a ring
		state, _, _ = large.Step(state, epoch+10*second+i, take(1))
		if i == 50 || i == 499 {
			f.Add(bytes.Clone(state), epoch+11*second, uint8(i), int64(1), epoch+10*second+i/2)
		}
	}
	f.Add(bytes.Clone(state), epoch+11*second, uint8(2), int64(1), epoch+10*second+399)
	f.Add([]byte("short"), epoch, uint8(1), int64(1), int64(0))
	f.Fuzz(func(t *testing.T, state []byte, now int64, op uint8, n, at int64) {
		d := driver.Demand{Op: driver.Op(op % 4), N: 1 + n&(driver.MaxUnits-1), At: at}
		now &= 1<<52 - 1
		next, keep, res := l.Step(bytes.Clone(state), now, d)
		if keep < 0 {
			return
		}
		if res.Remaining < 0 || res.Remaining > l.Limit().Max || res.RetryAfter < 0 ||
			res.ResetAfter < 0 {
			t.Fatalf("%+v", res)
		}
		if cap(next) > 2*len(state)+blockSize+ringEnd {
			t.Fatalf("%d bytes made room for %d", len(state), cap(next))
		}
		if admitted := admittedAt(l, state, now, l.Limit().Max+2); admitted > l.Limit().Max {
			t.Fatalf("%d admitted", admitted)
		}
		if keep > 0 && d.Op != driver.OpReset {
			if _, ok := decodeLog(next); !ok {
				t.Fatal("wrote a state that does not decode")
			}
		}
	})
}

// admittedAt returns how many of this number of takes are admitted on a state, until the state
// turns out to be corrupt.
func admittedAt(l Log, state []byte, now, times int64) (admitted int64) {
	state = bytes.Clone(state)
	for range times {
		next, keep, res := l.Step(state, now, take(1))
		if keep < 0 {
			break
		}
		if keep > 0 {
			state = next
		}
		if res.Allowed {
			admitted++
		}
	}
	return admitted
}

func BenchmarkStep(b *testing.B) {
	for _, limit := range []int64{10, 1000, 100_000} {
		b.Run(fmt.Sprintf("take/%d", limit), func(b *testing.B) {
			l := SlidingLog(driver.PerMinute("minute", limit))
			gap := 60*second/limit + 1
			var state []byte
			now := epoch
			b.ReportAllocs()
			for b.Loop() {
				now += gap
				state, _, _ = l.Step(state, now, take(1))
			}
		})
		b.Run(fmt.Sprintf("refused/%d", limit), func(b *testing.B) {
			l := SlidingLog(driver.PerMinute("minute", limit))
			var state []byte
			for i := range limit {
				state, _, _ = l.Step(state, epoch+i, take(1))
			}
			b.ReportAllocs()
			for b.Loop() {
				l.Step(state, epoch+limit, take(1))
			}
		})
	}
}

// TestSumOfUnits: a state is corrupt if its sum of units is not that of its records.
func TestSumOfUnits(t *testing.T) {
	log := SlidingLog(driver.Limit{Max: 3, Window: 10 * time.Second})
	const now = int64(1_790_000_000_000_000)
	take := driver.Demand{Algorithm: log, N: 2}
	state, _, _ := log.Step(nil, now, take)
	later := now + int64(5*time.Second/time.Microsecond)
	take.N = 1
	state, _, _ = log.Step(state, later, take)
	for _, tt := range []struct {
		name string
		used int64
		now  int64
	}{
		{"less than left the window", 1, now + int64(10*time.Second/time.Microsecond)},
		{"more than there are", 9, later},
	} {
		g, ok := decodeLog(append([]byte(nil), state...))
		if !ok {
			t.Fatal("the state is corrupt from the start")
		}
		g.used = tt.used
		if _, keep, res := log.Step(g.encode(), tt.now, take); keep >= 0 ||
			res != (driver.Result{}) {
			t.Errorf("%s: keep %v, %+v", tt.name, keep, res)
		}
	}
}

// TestExponentOutOfRange: a state is corrupt if its exponent is more than 45, whichever of its 11
// bits are set.
func TestExponentOutOfRange(t *testing.T) {
	log := SlidingLog(driver.PerMinute("minute", 3))
	for e, want := range map[uint64]bool{0: true, 45: true, 46: false, 64: false, 256: false,
		1024: false, 2047: false} {
		state, _, _ := log.Step(nil, epoch, take(1))
		past := state[recordSize+14:][:7] // its first 11 bits
		past[0] |= byte(e >> 3)
		past[1] |= byte(e << 5)
		if _, keep, _ := log.Step(state, epoch, peek(1)); (keep >= 0) != want {
			t.Errorf("exponent %d: keep %v", e, keep)
		}
	}
}

// TestSizesDoNotWrap: a state is corrupt if its size is that of its records only in 32 bits.
func TestSizesDoNotWrap(t *testing.T) {
	const wraps = 1 << 30 // times 12, the size of a record, or 780, that of a block
	l := SlidingLog(driver.PerMinute("minute", 1000))
	var state []byte
	for i := range int64(900) {
		state, _, _ = l.Step(state, epoch+i, take(1))
		if i != 50 && i != 899 {
			continue
		}
		wrong := bytes.Clone(state)
		g, _ := decodeLog(wrong)
		if g.slots == 0 { // a line
			g.count, g.head = g.count+wraps-1<<25, 1<<25
			g.encode()
		} else {
			end := wrong[len(wrong)-ringEnd:]
			binary.BigEndian.PutUint32(end, binary.BigEndian.Uint32(end)+wraps)
		}
		for _, d := range []driver.Demand{peek(1), take(1)} {
			if _, keep, res := l.Step(bytes.Clone(wrong), epoch+second, d); keep >= 0 {
				t.Errorf("%d records, %v: keep %v, %+v", i+1, d.Op, keep, res)
			}
		}
	}
}

// TestDroppedSlots: a line keeps dropped records at its front up to its bound, which is 1/16 of it
// plus 12.
func TestDroppedSlots(t *testing.T) {
	l := SlidingLog(driver.PerMinute("minute", 200))
	var state []byte
	most, allowed := 0, 0
	for i := range int64(2000) {
		state, _, _ = l.Step(state, epoch+i*second*3/10, take(1))
		g, _ := decodeLog(state)
		if g.slots > 0 || i > 11 && !isLarge(len(state)) {
			t.Fatalf("step %d: %d records in another form", i, g.count)
		}
		most, allowed = max(most, g.head), (g.head+g.count-1)/16+12
		if g.head > allowed {
			t.Fatalf("step %d: %d dropped before %d records", i, g.head, g.count)
		}
	}
	if most < allowed-1 {
		t.Errorf("at most %d were dropped, %d may be", most, allowed)
	}
}
