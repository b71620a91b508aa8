package memorystore

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// These algorithms have a Decide of this module, and a Step of their own.
type (
	ownLog     struct{ algorithm.Log }
	ownBucket  struct{ algorithm.Bucket }
	ownFixed   struct{ algorithm.Fixed }
	ownCounter struct{ algorithm.Counter }
)

func (ownLog) Step([]byte, int64, driver.Demand) ([]byte, time.Duration, driver.Result) {
	return ownStep()
}

func (ownBucket) Step([]byte, int64, driver.Demand) ([]byte, time.Duration, driver.Result) {
	return ownStep()
}

func (ownFixed) Step([]byte, int64, driver.Demand) ([]byte, time.Duration, driver.Result) {
	return ownStep()
}

func (ownCounter) Step([]byte, int64, driver.Demand) ([]byte, time.Duration, driver.Result) {
	return ownStep()
}

// ownStep is a Step that counts nothing and always has 42 units.
func ownStep() ([]byte, time.Duration, driver.Result) {
	return []byte{1}, time.Hour, driver.Result{Allowed: true, Remaining: 42}
}

// TestStepOfEmbedding: the store calls Step of an algorithm that embeds one of this module.
func TestStepOfEmbedding(t *testing.T) {
	s := open(t, nil)
	limit := driver.PerHour("own", 10)
	for name, a := range map[string]driver.Algorithm{
		"log":     ownLog{algorithm.SlidingLog(limit)},
		"bucket":  ownBucket{algorithm.GCRA(limit)},
		"fixed":   ownFixed{algorithm.FixedWindow(limit)},
		"counter": ownCounter{algorithm.SlidingWindowCounter(limit)},
	} {
		other := algorithm.SlidingLog(driver.PerHour("other", 10))
		for range 3 {
			d := driver.Demand{Key: name, Algorithm: a, N: 1}
			if res := must(t, s, d, true); res.Remaining != 42 {
				t.Errorf("%s: Take got %+v", name, res)
			}
			out := make([]driver.Result, 2)
			ds := []driver.Demand{d, {Key: name, Algorithm: other, N: 1}}
			if err := s.TakeAll(t.Context(), ds, out); err != nil || out[0].Remaining != 42 {
				t.Errorf("%s: TakeAll got %+v, %v", name, out, err)
			}
		}
	}
}
