package replay

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

// randomArrivals returns arrivals of few keys, often at the same instant, and sometimes late.
func randomArrivals(r *rand.Rand, n int) (as []arrival) {
	now := int64(1_700_000_000_000_000)
	for range n {
		if r.IntN(3) > 0 {
			now += r.Int64N(400_000)
		}
		at := now
		if r.IntN(10) == 0 {
			at -= r.Int64N(1_000_000)
		}
		if r.IntN(200) == 0 {
			now += 20_000_000
		}
		key := fmt.Sprint("key ", r.IntN(1+r.IntN(20)))
		as = append(as, arrival{at, r.Int64N(1 + r.Int64N(5)), []byte(key)})
	}
	return as
}

// naive is what the model remembers of a key: all admissions, and all requests.
type naive struct {
	admitted []arrival
	refused  int64
	requests int64
	since    int64 // of refusals in a row
	inARow   int64
}

func (k *naive) used(now, window int64) (used int64) {
	for _, a := range k.admitted {
		if a.at > now-window {
			used += a.units
		}
	}
	return used
}

// naiveOutcome returns what the exact log would have done, computed without any of its code.
func naiveOutcome(l driver.Limit, as []arrival) Outcome {
	o := Outcome{Limit: l, Algorithm: "log"}
	keys, order, now := map[string]*naive{}, []string{}, int64(0)
	for _, a := range as {
		now = max(now, a.at)
		name := string(a.key)
		k := keys[name]
		if k == nil {
			k = new(naive)
			keys[name], order = k, append(order, name)
		}
		k.requests++
		if a.units == 0 {
			continue
		}
		if k.used(now, l.Window.Microseconds())+a.units <= l.Max {
			k.admitted = append(k.admitted, arrival{at: now, units: a.units})
			k.inARow = 0
			continue
		}
		at := instant(now)
		if o.First == nil {
			o.First = &at
		}
		o.Last = &at
		o.Refused++
		o.RefusedUnits += a.units
		if a.units > l.Max {
			o.TooLarge++
		}
		k.refused++
		if k.inARow == 0 {
			k.since = now
		}
		k.inARow++
		s := &Stretch{name, instant(k.since), at, k.inARow}
		if o.Longest == nil || cmp.Or(
			cmp.Compare(s.To.Sub(s.From), o.Longest.To.Sub(o.Longest.From)),
			cmp.Compare(s.Refused, o.Longest.Refused)) > 0 {
			o.Longest = s
		}
	}
	for _, name := range order {
		if k := keys[name]; k.refused > 0 {
			o.KeysRefused++
			o.WorstKeys = append(o.WorstKeys, WorstKey{name, k.refused, k.requests})
		}
	}
	slices.SortStableFunc(o.WorstKeys, func(a, b WorstKey) int {
		return cmp.Compare(b.Refused, a.Refused)
	})
	o.WorstKeys = o.WorstKeys[:min(len(o.WorstKeys), worstKeys)]
	return o
}

func TestOutcomeIsThatOfTheModel(t *testing.T) {
	limits := []driver.Limit{
		{Max: 3, Window: time.Second}, {Max: 10, Window: 7 * time.Second},
		{Max: 1, Window: time.Millisecond}, {Max: 1000, Window: time.Hour},
	}
	refused := int64(0)
	for seed := range uint64(30) {
		as := randomArrivals(rand.New(rand.NewPCG(seed, 1)), 1000)
		_, report := replayed(t, exactly(limits...), as)
		for i, l := range limits {
			want := naiveOutcome(l, as)
			refused += want.Refused
			if got := report.Proposals[i]; !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, %v: got\n%+v\nwant\n%+v", seed, l, got, want)
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

// TestReplayIsTheLimiter compares each decision with that of a limiter on memory.
func TestReplayIsTheLimiter(t *testing.T) {
	limit := driver.Limit{Name: "limit", Max: 10, Window: 5 * time.Second}
	for seed := range uint64(20) {
		now := int64(0)
		store, err := memorystore.New(&memorystore.Options{Now: func() int64 { return now }})
		if err != nil {
			t.Fatal(err)
		}
		limiter, err := ratelimit.New(store, algorithm.SlidingLog(limit))
		if err != nil {
			t.Fatal(err)
		}
		e := newEngine(exactly(limit))
		for i, a := range randomArrivals(rand.New(rand.NewPCG(seed, 2)), 1000) {
			before := e.trials[0].refused
			e.arrive(&a)
			now = max(now, a.at)
			if a.units == 0 {
				continue
			}
			res, err := limiter.AllowN(t.Context(), string(a.key), a.units)
			if err != nil {
				t.Fatal(err)
			}
			if admitted := e.trials[0].refused == before; admitted != res.Allowed {
				t.Fatalf("seed %d, arrival %d: the limiter says %v", seed, i, res.Allowed)
			}
		}
		store.Close()
	}
}

func TestInput(t *testing.T) {
	second := int64(1e6)
	as := []arrival{
		{10 * second, 1, []byte("a")}, {9 * second, 2, []byte("b")}, {12 * second, 0, []byte("a")},
		{7 * second, 1, []byte("c")}, {12 * second, 5, []byte("a")},
	}
	_, report := replayed(t, exactly(driver.Limit{Max: 4, Window: time.Second}), as)
	want := Input{Lines: 5, Requests: 5, Units: 9, Keys: 3, First: instant(10 * second),
		Last: instant(12 * second), Late: 2, MostLate: 5 * time.Second}
	if !reflect.DeepEqual(report.Input, want) {
		t.Errorf("got  %+v\nwant %+v", report.Input, want)
	}
	if o := report.Proposals[0]; o.TooLarge != 1 || o.Refused != 1 {
		t.Errorf("%+v", o)
	}
}

// TestIdleStatesAreForgotten replays many keys that arrive once, and then one key only.
func TestIdleStatesAreForgotten(t *testing.T) {
	limit := driver.Limit{Max: 1, Window: time.Second}
	e := newEngine(append(exactly(limit), Proposal{"fixed", fixed{limit}}))
	const keys = 10_000
	for i := range 3 * keys {
		key := fmt.Sprint(min(i, keys-1))
		e.arrive(&arrival{int64(i) * 1000, 1, []byte(key)})
	}
	if len(e.keys) != keys || len(e.trials[0].tallies) != keys {
		t.Errorf("%d keys", len(e.keys))
	}
	n, audited := states(e.trials[0].tallies), audits(e.trials[1].audit.entries)
	if n != 1 || audited != 1 {
		t.Errorf("%d and %d states are left", n, audited)
	}
}

func states(tallies []tally) (n int) {
	for i := range tallies {
		if tallies[i].state != nil {
			n++
		}
	}
	return n
}

func audits(entries []auditEntry) (n int) {
	for i := range entries {
		if entries[i].state != nil {
			n++
		}
	}
	return n
}
