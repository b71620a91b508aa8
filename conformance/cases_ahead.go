package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

const saysAhead = "The limit then holds as if each unit were taken when it is used, also beside " +
	"takes of other leads and of none, if the store's clock is not set forward."

var aheadRules = []rule{
	{name: "ahead/never-above", says: saysAhead, check: checkAhead},
}

// checkAhead has processes with several leads and with none take units, and use them when it may do
// most harm: at the end of a lead, or a Window after other uses. The same units that are taken one
// after the other when they are used must all be admitted.
func checkAhead(e *env) {
	tried := false
	for _, newAlgorithm := range e.algorithms {
		plain, ok := newAlgorithm(driver.Limit{Max: 20, Window: window}).(driver.Ahead)
		if !ok || plain.Ahead(window/50) == nil {
			continue
		}
		tried = true
		for range e.rounds(4) {
			playAhead(e, plain)
		}
	}
	if !tried { // no algorithm of the author's has leads
		playAhead(e, slidingLog(1)(driver.Limit{Max: 20, Window: window}).(driver.Ahead))
	}
}

type use struct{ at, units int64 }

func playAhead(e *env, plain driver.Ahead) {
	key, leads := e.key(), []time.Duration{0, window / 50, window / 8}
	var uses []use
	var instants []int64 // around which decisions change
	for range 40 {
		now := e.clock.us.Load()
		if e.rand.IntN(3) > 0 || len(uses) == 0 {
			now += e.rand.Int64N(window.Microseconds() / 20)
		} else {
			at := pick(e.rand, instants...) + window.Microseconds() + e.rand.Int64N(3) - 1
			now = max(now, at)
		}
		e.clock.set(now)
		lead := pick(e.rand, leads...)
		d := take(key, plain.Ahead(lead), 1+e.rand.Int64N(plain.Limit().Max))
		d.Least = 1
		res := e.do(d)
		instants = append(instants, now)
		if !res.Allowed {
			continue
		}
		last := max(0, min(lead, res.ResetAfter).Microseconds()-1)
		early := e.rand.Int64N(res.Units + 1)
		uses = append(uses, use{now + e.rand.Int64N(last+1), early},
			use{now + last, res.Units - early})
		instants = append(instants, now+last)
	}
	slices.SortFunc(uses, func(a, b use) int { return cmp.Compare(a.at, b.at) })
	checkUses(e, plain, uses)
	e.admit(reset(key, plain))
}

// checkUses takes each unit when it was used.
func checkUses(e *env, plain driver.Ahead, uses []use) {
	var state []byte
	for i, u := range uses {
		if u.units == 0 {
			continue
		}
		next, keep, res := take("k", plain.Ahead(0), u.units).Step(state, u.at)
		if !res.Allowed {
			e.fatalf("%v units taken ahead were used above the limit %v:%s", u.units, plain,
				usesText(uses[max(0, i-10):i+1]))
		}
		if keep > 0 {
			state = next
		}
	}
}

func usesText(uses []use) (text string) {
	for _, u := range uses {
		text += fmt.Sprintf("\n%d units at %d", u.units, u.at)
	}
	return text
}
