package conformance

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

var errNoOrder = errors.New("no order explains the results")

// search finds an order that explains a history by trying all. Package linear is better at it, but
// importing it here would give this package its dependency.
type search struct {
	clients map[int][]Operation
	failed  map[string]bool
}

func checkOrder(history []Operation) error {
	s := search{make(map[int][]Operation), make(map[string]bool)}
	for _, op := range history {
		s.clients[op.Client] = append(s.clients[op.Client], op)
	}
	if !s.from(make([]int, len(s.clients)), newModel(0)) {
		return errNoOrder
	}
	return nil
}

// from reports whether what is left of each client's calls, from done on, has an order after what m
// has seen.
func (s search) from(done []int, m *model) bool {
	first := time.Duration(math.MaxInt64) // return of the call that returned first
	for c, n := range done {
		if n < len(s.clients[c]) {
			first = min(first, s.clients[c][n].Return)
		}
	}
	if first == math.MaxInt64 {
		return true
	}
	at := fmt.Sprint(done, m.states)
	if s.failed[at] {
		return false
	}
	for c, n := range done {
		if n == len(s.clients[c]) || s.clients[c][n].Call > first {
			continue
		}
		op := s.clients[c][n]
		after := &model{now: op.Now, states: maps.Clone(m.states)}
		results, writes := after.decide(op.Demands)
		if !slices.Equal(results, op.Results) {
			continue
		}
		after.commit(writes)
		next := slices.Clone(done)
		next[c]++
		if s.from(next, after) {
			return true
		}
	}
	s.failed[at] = true
	return false
}

// TestHistories: the rules that record histories pass them to the check, and fail with its error.
func TestHistories(t *testing.T) {
	opts := &Options{CheckHistory: checkOrder}
	see := func(b bugs, name string) (err error) { // a busy machine may hide a fault
		for tries := 0; tries < 10 && !errors.Is(err, errNoOrder); tries++ {
			err = tryRule(t, newReference(b), opts, name)
		}
		return err
	}
	for _, name := range []string{"concurrency/history", "concurrency/history-two-clients"} {
		if err := tryRule(t, newReference(bugs{}), opts, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		outlives := caching(cacheFault{keeps: isOp(driver.OpTake)})
		if err := see(outlives, name); !errors.Is(err, errNoOrder) {
			t.Errorf("%s of a cache that outlives admissions: %v, want %v", name, err, errNoOrder)
		}
		apart := apartLast(settlement, oneOf)
		if err := see(apart, name); !errors.Is(err, errNoOrder) {
			t.Errorf("%s of settlements one by one: %v, want %v", name, err, errNoOrder)
		}
		err := see(lostUpdate, name)
		if !errors.Is(err, errNoOrder) {
			t.Fatalf("%s of a store that loses updates: %v, want %v", name, err, errNoOrder)
		}
		for _, want := range []string{seedVar + "=", "calls are enough", "client ", " left"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error of %s does not say %q:\n%v", name, want, err)
			}
		}
		if lines := strings.Count(err.Error(), "\n"); lines > 40 {
			t.Errorf("the error of %s has %d lines", name, lines)
		}
	}
}

// TestShorten leaves of three histories, one of which fails, the calls that suffice.
func TestShorten(t *testing.T) {
	a := slidingLog(1)(driver.Limit{Name: "a", Max: 3, Window: window})
	m := newModel(start)
	at := time.Duration(0)
	call := func(d driver.Demand, overlap time.Duration) Operation {
		results, writes := m.decide([]driver.Demand{d})
		m.commit(writes)
		at += 10
		return Operation{Call: at - overlap, Return: at + 5, Now: start,
			Demands: []driver.Demand{d}, Results: results}
	}
	var sound, broken []Operation
	for range 6 {
		sound = append(sound, call(take("k", a, 1), 0), call(peek("k", a, 1), 0))
	}
	first := call(take("l", a, 1), 0)
	second := first // an update was lost
	second.Call, second.Return, second.Client = first.Call+1, first.Return+1, 1
	broken = append(broken, call(peek("l", a, 1), 0), first, second)
	broken[0].Call, broken[0].Return = first.Call-5, first.Call-1
	broken[0].Results, _ = newModel(start).decide(broken[0].Demands)
	for range 8 {
		broken = append(broken, call(take("l", a, 1), 7))
	}
	histories := [][]Operation{sound, broken, sound}
	err := checkOrder(slices.Concat(histories...))
	if err == nil {
		t.Fatal("the history is linearizable")
	}
	part := shorten(histories, err, checkOrder, time.Now().Add(time.Minute))
	if len(part) != 2 || part[0].Demands[0] != first.Demands[0] || part[1].Call != second.Call {
		t.Errorf("the history was shortened to\n%s", table(part))
	}
	want := "at 1800000000123457:\n" +
		"\tclient 0,       0s to       0s: take 1 of a: 2 of 3 left, all in 10m0s\n" +
		"\tclient 1,       0s to       0s: take 1 of a: 2 of 3 left, all in 10m0s\n"
	if got := table(part); got != want {
		t.Errorf("the table is\n%s\nwant\n%s", got, want)
	}
	if part := shorten(histories, err, checkOrder, time.Now()); part != nil {
		t.Errorf("without time the history was shortened to %d calls", len(part))
	}
}

// tryRule returns how the store breaks the rule of that name.
func tryRule(t testing.TB, newStore NewStore, opts *Options, name string) error {
	t.Helper()
	for _, r := range rules() {
		if r.name == name {
			_, err := newSuite(opts).try(t, newStore, r)
			return err
		}
	}
	t.Fatalf("there is no rule %q", name)
	return nil
}

// TestExtendCached lets a refusal from a cache begin with the first call that was in flight, and
// after those that had returned.
func TestExtendCached(t *testing.T) {
	refusal := []driver.Result{{Source: driver.SourceCache}}
	stored := []driver.Result{{}}
	recorded := [][]Operation{
		{{Call: 1, Return: 2, Results: stored}, {Call: 3, Return: 9, Results: stored}},
		{{Call: 4, Return: 5, Results: stored}, {Call: 6, Return: 7, Results: refusal}},
		{{Call: 2, Return: 6, Results: refusal}},
	}
	(&callRecorder{env: new(env)}).extendCached(recorded)
	var calls []time.Duration
	for _, ops := range recorded {
		for _, op := range ops {
			calls = append(calls, op.Call)
		}
	}
	if want := []time.Duration{1, 3, 4, 2, 1}; !slices.Equal(calls, want) {
		t.Errorf("the calls begin at %v, want %v", calls, want)
	}
}
