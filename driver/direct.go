package driver

import (
	"context"
	"time"
)

// A DirectStore has a shorter path for single demands, which saves a Limiter a fifth of a decision
// in memory. No store needs it.
type DirectStore interface {
	Store
	// Direct returns the shorter path if outer is this store, and nil if it is another one: a store
	// that embeds a DirectStore has its method, and a Take of its own that must be called.
	Direct(outer Store) Taker
}

// A Taker is a [Store] with the fields of the demand and of the result one by one. The compiler
// keeps these in registers; a struct of more than four words is copied through memory.
type Taker interface {
	// TakeFields is Take of a demand without At, ID and Hold. The Limit of the result is that of a.
	TakeFields(ctx context.Context, key string, a Algorithm, op Op, n int64) (
		allowed bool, source Source, remaining int64,
		retryAfter, resetAfter time.Duration, err error,
	)
}
