package replay

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// fixed counts in windows that begin at whole multiples of the Window. It is not exact in both
// directions: it also refuses everything in the first microsecond of a window.
type fixed struct{ limit driver.Limit }

func (f fixed) Name() string          { return "fixed" }
func (f fixed) Limit() driver.Limit   { return f.limit }
func (f fixed) Validate() error       { return f.limit.Validate() }
func (f fixed) Script() driver.Script { return driver.Script{} }

func (f fixed) Step(state []byte, now int64, d driver.Demand) (
	next []byte, keep time.Duration, res driver.Result,
) {
	window := f.limit.Window.Microseconds()
	start, used := now-now%window, int64(0)
	if len(state) > 0 && int64(binary.BigEndian.Uint64(state)) == start {
		used = int64(binary.BigEndian.Uint64(state[8:]))
	}
	if used+d.N > f.limit.Max || now == start {
		return state, 0, driver.Result{}
	}
	next = binary.BigEndian.AppendUint64(nil, uint64(start))
	next = binary.BigEndian.AppendUint64(next, uint64(used+d.N))
	return next, time.Duration(start+window-now) * time.Microsecond, driver.Result{Allowed: true}
}

// TestExactness compares with sums over all that was admitted.
func TestExactness(t *testing.T) {
	limit := driver.Limit{Max: 6, Window: 3 * time.Second}
	var sum Exactness
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		as := randomArrivals(r, 1000)
		for i := range as {
			if r.IntN(20) == 0 {
				as[i].at -= as[i].at % 3e6 // where all is refused
			}
		}
		_, report := replayed(t, []Proposal{{"fixed", fixed{limit}}}, as)
		got, want := *report.Proposals[0].Exactness, naiveExactness(limit, as)
		if got != want {
			t.Fatalf("seed %d: got %+v, want %+v", seed, got, want)
		}
		sum.OverLimit += got.OverLimit
		sum.WrongRefusals += got.WrongRefusals
		sum.MostInWindow = max(sum.MostInWindow, got.MostInWindow)
	}
	if sum.OverLimit == 0 || sum.WrongRefusals == 0 || sum.MostInWindow <= limit.Max {
		t.Errorf("the algorithm did nothing wrong: %+v", sum)
	}
}

func naiveExactness(l driver.Limit, as []arrival) (e Exactness) {
	keys, counters, now := map[string]*naive{}, map[string][]byte{}, int64(0)
	window := l.Window.Microseconds()
	for _, a := range as {
		now = max(now, a.at)
		name := string(a.key)
		if keys[name] == nil {
			keys[name] = new(naive)
		}
		if a.units == 0 {
			continue
		}
		k := keys[name]
		next, keep, res := fixed{l}.Step(counters[name], now, driver.Demand{N: a.units})
		if keep > 0 {
			counters[name] = next
		}
		if !res.Allowed {
			if k.used(now, window)+a.units <= l.Max {
				e.WrongRefusals++
			}
			continue
		}
		k.admitted = append(k.admitted, arrival{at: now, units: a.units})
		used := k.used(now, window)
		e.MostInWindow = max(e.MostInWindow, used)
		if used > l.Max {
			e.OverLimit++
		}
	}
	return e
}
