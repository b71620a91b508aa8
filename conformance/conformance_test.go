package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/holdmodel"
)

// acceptAll stands for a checker of histories where none is needed.
func acceptAll([]Operation) error { return nil }

func TestReferencePasses(t *testing.T) {
	t.Parallel()
	Run(t, newReference(bugs{}), &Options{CheckHistory: acceptAll})
}

// TestNaivePasses runs the suite with another algorithm than the default.
func TestNaivePasses(t *testing.T) {
	t.Parallel()
	Run(t, newReference(bugs{}), &Options{
		CheckHistory: acceptAll,
		Algorithms: []func(driver.Limit) driver.Algorithm{naiveLog(1), naiveLog(100),
			naiveLog(37_777)},
		Except: slow(),
	})
}

// naiveLog makes logs by their definition as slidingLog makes fast ones.
func naiveLog(parts time.Duration) func(driver.Limit) driver.Algorithm {
	return func(limit driver.Limit) driver.Algorithm {
		resolution := time.Microsecond
		if parts > 1 {
			resolution = (limit.Window / parts).Truncate(time.Microsecond)
		}
		return holdmodel.Log{Of: limit, Resolution: resolution}
	}
}

// slow returns exceptions for the cases of many keys and calls, for stores that differ from the
// reference in something else.
func slow() map[string]string {
	except := make(map[string]string)
	for _, name := range []string{"identity/many-keys", "op/many-records",
		"concurrency/many-calls"} {
		except[name] = "TestReferencePasses tries it"
	}
	return except
}

// TestLogDecidesLikeNaive compares the sliding-window log with its definition: the suite must not
// find a difference in a store that decides by the naive log instead.
func TestLogDecidesLikeNaive(t *testing.T) {
	t.Parallel()
	impostor := bugs{demand: func(
		_ *reference, d driver.Demand, now int64,
	) (driver.Demand, int64) {
		if naive, ok := naiveOf(d.Algorithm); ok {
			d.Algorithm = naive
		}
		return d, now
	}}
	Run(t, newReference(impostor), &Options{CheckHistory: acceptAll, Except: slow()})
}

// naiveOf returns the naive log that decides as a does.
func naiveOf(a driver.Algorithm) (naive holdmodel.Log, ok bool) {
	log, ok := unwrap(a).(algorithm.Log)
	if !ok {
		return naive, false
	}
	naive = holdmodel.Log{Of: log.Limit(), Resolution: log.Resolution()}
	if args := log.Script().Args(nil, driver.Demand{Algorithm: log}); len(args) > 3 {
		naive.Lead = time.Duration(args[3]) * time.Microsecond
	}
	return naive, true
}

// unwrap returns the algorithm inside of those of the suite.
func unwrap(a driver.Algorithm) driver.Algorithm {
	switch w := a.(type) {
	case hostile:
		return unwrap(w.Algorithm)
	case hostileHolder:
		return unwrap(w.Algorithm)
	case spied:
		return unwrap(w.Algorithm)
	case renamed:
		return unwrap(w.Algorithm)
	case scriptless:
		return unwrap(w.Algorithm)
	}
	return a
}

func TestExceptIsChecked(t *testing.T) {
	s := newSuite(&Options{Except: map[string]string{"takeall": "no transactions", "op/take": " ",
		"op/tke": "why", "tak": "why"}})
	problems := strings.Join(s.unknown(), "\n")
	for _, want := range []string{`no reason for "op/take"`, `names "op/tke"`, `names "tak"`} {
		if !strings.Contains(problems, want) {
			t.Errorf("the problems\n%s\ndo not hold %s", problems, want)
		}
	}
	if strings.Contains(problems, `"takeall"`) {
		t.Errorf("a group with a reason is a problem:\n%s", problems)
	}
}
