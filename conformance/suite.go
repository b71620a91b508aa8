package conformance

import (
	"os"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// suite is Options with the defaults filled in.
type suite struct {
	except       map[string]string
	full         bool
	algorithms   []func(driver.Limit) driver.Algorithm
	kinds        []kind // of limits with holds
	checkHistory func([]Operation) error
	deadline     time.Time // of the test binary, if it has one
	// multiplies the time of cases that make as many calls as they can
	patience time.Duration
}

func newSuite(opts *Options) *suite {
	if opts == nil {
		opts = new(Options)
	}
	s := &suite{
		except:       opts.Except,
		full:         opts.Full || os.Getenv("RATELIMIT_CONFORMANCE_FULL") == "1",
		kinds:        slices.Clone(ownKinds),
		checkHistory: opts.CheckHistory,
		patience:     1,
	}
	for _, newAlgorithm := range opts.Algorithms {
		k, ok := theirKind(newAlgorithm)
		if ok {
			s.kinds = append(s.kinds, k)
		}
		if !ok || !k.inFlight() {
			s.algorithms = append(s.algorithms, newAlgorithm)
		}
	}
	if len(s.algorithms) == 0 {
		s.algorithms = []func(driver.Limit) driver.Algorithm{slidingLog(1), slidingLog(100),
			slidingLog(37_777), aheadLog}
	}
	return s
}

// slidingLog makes sliding-window logs with a Resolution of Window / parts. They are exact if parts
// is 1.
func slidingLog(parts time.Duration) func(driver.Limit) driver.Algorithm {
	return func(limit driver.Limit) driver.Algorithm {
		log := algorithm.SlidingLog(limit)
		if parts > 1 {
			log = log.WithResolution((limit.Window / parts).Truncate(time.Microsecond))
		}
		return log
	}
}

// aheadLog makes logs of units that are taken before they are used.
func aheadLog(limit driver.Limit) driver.Algorithm {
	return algorithm.SlidingLog(limit).Ahead((limit.Window / 50).Truncate(time.Microsecond))
}

// watchdog is how long a case may last at the usual depth. It is also the shortest time to live, in
// real time, of what a case on an injected clock leaves on a server and reads again.
const watchdog = time.Minute
