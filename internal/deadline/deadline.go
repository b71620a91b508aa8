// Package deadline tells whether a caller's time is over.
package deadline

import (
	"context"
	"time"
)

// Passed reports whether ctx has ended or its deadline has passed. A context ends a little after
// its deadline, and a network operation that has the same deadline may fail before that.
func Passed(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	at, ok := ctx.Deadline()
	return ok && !time.Now().Before(at)
}
