// Package direct is a shorter path from a limiter to the memory store for single demands, which
// saves a fifth of a decision.
package direct

import (
	"context"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// A Store has the shorter path.
type Store interface {
	driver.Store
	// Direct returns the shorter path if outer is this store, and nil if it is another one: a store
	// that embeds a Store has its method, and a Take of its own that must be called.
	Direct(outer driver.Store) Taker
}

// A Taker is a [driver.Store] with the fields of the demand and of the result one by one. The
// compiler keeps these in registers; a struct of more than four words is copied through memory.
type Taker interface {
	// TakeFields is Take of a demand without At, ID, Hold and Least. The Limit of the result is
	// that of a.
	TakeFields(ctx context.Context, key string, a driver.Algorithm, op driver.Op, n int64) (
		allowed bool, source driver.Source, remaining int64,
		retryAfter, resetAfter time.Duration, err error,
	)
}
