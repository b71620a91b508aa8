package ratelimit_test

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
)

func TestBinding(t *testing.T) {
	ok := func(remaining int64, reset time.Duration) ratelimit.Result {
		return ratelimit.Result{Allowed: true, Remaining: remaining, ResetAfter: reset}
	}
	no := func(retry time.Duration, remaining int64, reset time.Duration) ratelimit.Result {
		return ratelimit.Result{RetryAfter: retry, Remaining: remaining, ResetAfter: reset}
	}
	tests := []struct {
		name    string
		results []ratelimit.Result
		want    int
	}{
		{"one", []ratelimit.Result{ok(1, 1)}, 0},
		{"least remaining", []ratelimit.Result{ok(5, 9), ok(2, 1), ok(3, 9)}, 1},
		{"refused before least remaining", []ratelimit.Result{ok(0, 9), no(1, 5, 1), ok(0, 9)}, 1},
		{"longest to retry", []ratelimit.Result{no(1, 0, 9), no(3, 4, 3), ok(0, 99), no(2, 0, 9)},
			1},
		{"refused alike: least remaining", []ratelimit.Result{no(3, 2, 9), no(3, 1, 3)}, 1},
		{"refused alike: longest to reset", []ratelimit.Result{no(3, 1, 3), no(3, 1, 9)}, 1},
		{"admitted alike: longest to reset", []ratelimit.Result{ok(2, 1), ok(2, 7), ok(2, 5)}, 1},
		{"all alike: the first", []ratelimit.Result{ok(2, 1), ok(2, 1)}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := ratelimit.Binding(tt.results); got != tt.want {
				t.Errorf("Binding = %d, want %d", got, tt.want)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		defer func() {
			if recover() == nil {
				t.Error("Binding of no results did not panic")
			}
		}()
		ratelimit.Binding(nil)
	})
}
