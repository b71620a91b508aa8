package algorithms

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// Algorithms of limits of the service that are not in the table.
const (
	Bucket   = "bucket"    // the table has it as gcra
	Month    = "month"     // calendar months
	InFlight = "in-flight" // units held at once
	Block    = "block"     // blocked keys
)

var service = []string{"log", Bucket, "fixed", "counter", Month, InFlight, Block}

// OfService returns the names of the algorithms that limits of the service have, the exact log's
// first.
func OfService() []string { return slices.Clone(service) }

// New returns the algorithm of a limit of the service. Month and InFlight ignore the Window of the
// limit, and Block its Max: its Window is the longest block. If holds is positive, units can be
// held, for that long by default; for InFlight, 0 is a minute. debt is that of a bucket, of which 0
// is the longest; others have none, and ignore it. An error wraps [driver.ErrInvalid].
func New(name string, limit driver.Limit, holds, debt time.Duration) (driver.Algorithm, error) {
	a, err := withoutHolds(name, limit)
	if err != nil {
		return nil, err
	}
	if b, ok := a.(algorithm.Bucket); ok {
		a = b.WithDebt(debt)
	}
	if held, ok := a.(algorithm.Held); ok && holds != 0 {
		a = held.WithTimeout(holds)
	} else if holds != 0 {
		if name == Block {
			return nil, fmt.Errorf("%w limit: a block holds no units", driver.ErrInvalid)
		}
		a = algorithm.Budget(a).WithTimeout(holds)
	}
	if err := a.Validate(); err != nil {
		return nil, err
	}
	return a, nil
}

func withoutHolds(name string, limit driver.Limit) (driver.Algorithm, error) {
	switch name {
	case Bucket:
		return algorithm.GCRA(limit), nil
	case Month:
		return algorithm.Monthly(limit.Name, limit.Max), nil
	case InFlight:
		return algorithm.InFlight(limit.Name, limit.Max), nil
	case Block:
		return algorithm.Blocking(limit.Name, limit.Window), nil
	}
	if !slices.Contains(service, name) {
		return nil, fmt.Errorf("%w limit: %q is not an algorithm; the algorithms are %s",
			driver.ErrInvalid, name, strings.Join(service, ", "))
	}
	named, err := ByName(name)
	if err != nil {
		return nil, err
	}
	return named.New(limit), nil
}
