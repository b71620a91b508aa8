package ratelimit_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

func TestErrorClasses(t *testing.T) {
	classes := []struct {
		name  string
		err   error
		wraps []error // of all errors below, those that it wraps beside itself
	}{
		{"ErrInvalid", ratelimit.ErrInvalid, nil},
		{"ErrExceedsLimit", ratelimit.ErrExceedsLimit, nil},
		{"ErrNoScript", driver.ErrNoScript, []error{errors.ErrUnsupported}},
		{"ErrUnavailable", ratelimit.ErrUnavailable, nil},
		{"ErrOutcomeUnknown", ratelimit.ErrOutcomeUnknown, []error{ratelimit.ErrUnavailable}},
		{"ErrCapacity", driver.ErrCapacity, []error{ratelimit.ErrUnavailable}},
		{"ErrContended", driver.ErrContended, []error{ratelimit.ErrUnavailable}},
		{"ErrClosed", driver.ErrClosed, []error{ratelimit.ErrUnavailable}},
		{"ErrCorruptState", driver.ErrCorruptState, []error{ratelimit.ErrUnavailable}},
	}
	all := []error{errors.ErrUnsupported}
	for _, c := range classes {
		all = append(all, c.err)
	}
	for _, c := range classes {
		for _, other := range all {
			want := other == c.err
			for _, w := range c.wraps {
				want = want || other == w
			}
			if got := errors.Is(c.err, other); got != want {
				t.Errorf("errors.Is(%s, %q) = %v", c.name, other, got)
			}
		}
		if !strings.HasPrefix(c.err.Error(), "ratelimit: ") {
			t.Errorf("%s reads %q, want the prefix of the package", c.name, c.err)
		}
	}
}
