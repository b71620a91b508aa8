package deadline_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/internal/deadline"
)

// lagging is a context that has not ended although its deadline has passed.
type lagging struct {
	context.Context
	at time.Time
}

func (c lagging) Deadline() (time.Time, bool) { return c.at, true }

func TestPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		late := lagging{t.Context(), time.Now().Add(time.Second)}
		canceled, cancel := context.WithCancel(t.Context())
		check := func(when string, ctx context.Context, want bool) {
			t.Helper()
			if got := deadline.Passed(ctx); got != want {
				t.Errorf("%s: got %t, want %t", when, got, want)
			}
		}
		check("no deadline", t.Context(), false)
		check("before cancellation", canceled, false)
		cancel()
		check("after cancellation", canceled, true)
		time.Sleep(time.Second - time.Nanosecond)
		check("before the deadline", ctx, false)
		check("before the deadline, lagging", late, false)
		time.Sleep(time.Nanosecond)
		check("at the deadline", ctx, true)
		check("at the deadline, lagging", late, true)
	})
}
