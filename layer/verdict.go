package layer

import (
	"context"
	"errors"
	"slices"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/deadline"
)

// verdict is what a call says about the availability of the store inside.
type verdict uint8

const (
	silent    verdict = iota // nothing
	answered                 // the store has decided
	failed                   // the store is unavailable
	abandoned                // the caller's context has ended: only a peek can find out
)

// judge returns the verdict of a call with ctx that ended with results or err. Callers choose
// their deadlines, so the error of a call whose context has ended proves nothing. Nor do results
// that are all from a cache or leases, nor [driver.ErrClosed], which is permanent.
func judge(ctx context.Context, err error, results ...driver.Result) verdict {
	switch {
	case err == nil && slices.ContainsFunc(results, decided):
		return answered
	case !driver.IsOutage(err), errors.Is(err, driver.ErrClosed):
		return silent
	case deadline.Passed(ctx):
		return abandoned
	}
	return failed
}

func decided(res driver.Result) bool {
	return res.Source != driver.SourceCache && res.Source != driver.SourceLease
}

// peekOf returns a peek at d's state.
func peekOf(d driver.Demand) driver.Demand {
	return driver.Demand{Key: d.Key, Algorithm: d.Algorithm, Op: driver.OpPeek, N: 1}
}

// granted returns d with the units that it got, if a part of N was enough.
func granted(d driver.Demand, res driver.Result) driver.Demand {
	if d.Least > 0 {
		d.N, d.Least = res.Units, 0
	}
	return d
}
