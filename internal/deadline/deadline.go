// Package deadline reports whether a caller's deadline has passed.
package deadline

import (
	"context"
	"time"
)

// Passed reports whether ctx has ended or its deadline has passed. A context ends a little after
// its deadline, and a network operation with the same deadline may fail in between.
func Passed(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	at, ok := ctx.Deadline()
	return ok && !time.Now().Before(at)
}
