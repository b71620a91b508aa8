package conformance

import (
	"regexp"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// theirs is an algorithm with holds of somebody else, and what is wrong with it.
type theirs struct {
	algorithm.Held
	renewsNothing, forcesUnknown, holdsOne bool
}

// Name differs, as the state may.
func (t theirs) Name() string { return "their" + t.Held.Name() }

func (t theirs) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	d.Algorithm = t.Held
	switch {
	case t.renewsNothing && d.Op == driver.OpHold && d.N == 0:
		d.Op, d.N, d.ID = driver.OpPeek, 1, 0
	case t.holdsOne && d.Op == driver.OpHold && d.N > 0:
		d.N = 1
	case t.forcesUnknown && d.Op == driver.OpSettle && d.N > 0:
		renew := d
		renew.Op, renew.N = driver.OpHold, 0
		if _, _, res := renew.Step(append([]byte(nil), state...), now); res.Units == 0 {
			d.Op, d.ID = driver.OpForce, 0
		}
	}
	return t.Held.Step(state, now, d)
}

func (theirs) Script() driver.Script { return driver.Script{} }

// their returns algorithms after the log, of which the last makes t of a budget or of calls in
// flight.
func their(t theirs, inFlight bool) []func(driver.Limit) driver.Algorithm {
	return []func(driver.Limit) driver.Algorithm{slidingLog(1),
		func(l driver.Limit) driver.Algorithm {
			if t.Held = algorithm.Budget(algorithm.SlidingLog(l)); inFlight {
				t.Held = algorithm.InFlight(l.Name, l.Max)
			}
			t.Held = t.WithTimeout(90 * time.Second)
			return t
		}}
}

var theirHoldFaults = []fault{
	{name: "renewals of another algorithm do nothing", always: true,
		rules:      "hold/renew hold/renew-late expiry/remembered",
		algorithms: their(theirs{renewsNothing: true}, false)},
	{name: "settlements of another algorithm are forced", always: true,
		rules:      "settle/unknown settle/twice takeall/settle-unknown-with-others",
		algorithms: their(theirs{forcesUnknown: true}, false)},
	{name: "other calls in flight are one each", always: true,
		rules:      "hold/counts hold/fits settle/in-flight",
		algorithms: their(theirs{holdsOne: true}, true)},
}

// TestTheirHoldsPass: the suite accepts other algorithms with holds.
func TestTheirHoldsPass(t *testing.T) {
	t.Parallel()
	tried := regexp.MustCompile("^(hold/[^f]|settle/|(takeall|step)/(results|state)$)|/remembered")
	for _, inFlight := range []bool{false, true} {
		s := newSuite(&Options{Algorithms: their(theirs{}, inFlight)})
		for _, r := range rules() {
			if !tried.MatchString(r.name) {
				continue
			}
			if _, err := s.try(t, newReference(bugs{}), r); err != nil {
				t.Errorf("%s: %v", r.name, err)
			}
		}
	}
}
