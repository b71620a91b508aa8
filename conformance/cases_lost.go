package conformance

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

var lostRules = []rule{
	{name: "errors/lost-answer", says: saysError, needs: loseAnswer, check: checkLostAnswer},
	{name: "errors/no-key-after-lost-answer",
		says: saysKeys, needs: loseAnswer, check: checkLostKey},
}

// lossTimeout is how long a call whose answer was lost may take, if the store waits for it.
const lossTimeout = 2 * time.Second

// loseOne makes one call whose answer is lost.
func (e *env) loseOne(ds ...driver.Demand) error {
	if err := e.harness.LoseAnswer(); err != nil {
		e.fatalf("LoseAnswer: %w", err)
	}
	ctx, cancel := context.WithTimeout(e.ctx, lossTimeout)
	defer cancel()
	if len(ds) == 1 {
		_, err := e.store.Take(ctx, ds[0])
		return err
	}
	return e.store.TakeAll(ctx, ds, make([]driver.Result, len(ds)))
}

// checkLostAnswer loses the answers to takes, one after the other, and checks what was recorded
// each time.
func checkLostAnswer(e *env) {
	const units = 3
	_, single := e.except["takeall"]
	unknown := 0
	for i := range 6 {
		ds := e.limits(2)
		if i%2 == 0 || single {
			ds = ds[:1]
		}
		if i%3 == 2 {
			ds[0].Op = driver.OpForce
		}
		var before []int64
		for j := range ds {
			ds[j].N = units
			before = append(before, e.awaitLeft(ds[j].Key, ds[j].Algorithm))
		}
		err := e.loseOne(ds...)
		for j, d := range ds {
			recorded := before[j] - e.awaitLeft(d.Key, d.Algorithm)
			switch {
			case recorded != 0 && recorded != units:
				e.fatalf("%v of %d whose answer was lost, with the error %v: %d units are "+
					"recorded; it may have been sent twice", d.Op, units, err, recorded)
			case errors.Is(err, driver.ErrOutcomeUnknown):
			case err == nil && recorded == 0:
				e.fatalf("%v whose answer was lost returned no error, but nothing is "+
					"recorded", d.Op)
			case errors.Is(err, driver.ErrUnavailable) && recorded != 0:
				e.fatalf("%v was recorded, but the error is not ErrOutcomeUnknown: %w", d.Op, err)
			case err != nil && !errors.Is(err, driver.ErrUnavailable):
				e.fatalf("%v whose answer was lost returned the error %w, want "+
					"ErrOutcomeUnknown", d.Op, err)
			}
		}
		if errors.Is(err, driver.ErrOutcomeUnknown) {
			unknown++
		}
	}
	if unknown == 0 {
		e.fatalf("LoseAnswer was called before each of six calls, but no outcome is unknown: no " +
			"answer was lost")
	}
}

func checkLostKey(e *env) {
	const secret = "s3cret-of-a-user"
	key, a := secret+e.key(), e.alg(5)
	for range 2 {
		e.awaitLeft(key, a)
		for err := range allErrors([]error{e.loseOne(take(key, a, 1))}) {
			if strings.Contains(err.Error(), secret) {
				e.fatalf("an error contains the key: %q", err)
			}
		}
	}
}
