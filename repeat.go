package ratelimit

import (
	"context"
	"errors"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// firstRepeat and lastRepeat are the pauses before a Cancel or Release is repeated in the
// background for the first and for the last time. Each is twice the one before.
const (
	firstRepeat = time.Second
	lastRepeat  = 32 * time.Second
)

// errPanicked is the error of a Cancel or Release that has panicked. Such a call is not repeated,
// since a panic in the background would end the process.
var errPanicked = errors.New("ratelimit: the store or an observer has panicked")

// repeatLocked repeats a Cancel or Release that has failed with err. It is mostly deferred, so
// nobody looks at its error. A Commit is not repeated: whoever has the token may commit instead. mu
// is held.
func (r *Reservation) repeatLocked(err error) {
	if r.repeat == nil {
		r.repeatAfter(firstRepeat, err)
	}
}

// repeatAfter repeats what has failed with err after a pause, unless that is of no use. mu is held.
func (r *Reservation) repeatAfter(pause time.Duration, err error) {
	r.repeat = nil
	switch {
	case transient(err) && r.ended != settled && pause <= lastRepeat:
		var repeat *time.Timer
		repeat = time.AfterFunc(pause, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.repeat != repeat {
				return
			}
			err := ErrOutcomeUnknown
			defer func() { r.repeatAfter(2*pause, err) }() // also if the goroutine ends
			err = r.finishLocked(context.Background())
		})
		r.repeat = repeat
	case err != nil && r.ended == canceled:
		r.holds.leave(true, isHolder)
	case err != nil && r.ended == notEnded:
		r.holds.leave(true, driver.Holder.InFlight)
	}
}

// finishLocked does what Cancel or Release has not done yet. mu is held.
func (r *Reservation) finishLocked(ctx context.Context) error {
	switch {
	case r.ended == canceled && r.commit != nil:
		return r.settleLocked(ctx, r.commit)
	case r.ended == canceled:
		return r.settleLocked(ctx, make([]int64, len(r.claims)))
	case (r.ended == notEnded || r.ended == tokened) && r.releasing && !r.released:
		return r.releaseLocked(ctx)
	}
	return nil
}
