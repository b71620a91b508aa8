package httplimit_test

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/httplimit"
)

// TestRetryJitter: refused clients are told different times, none shorter than the wait, and all
// the same RateLimit. Without the option all are told the wait.
func TestRetryJitter(t *testing.T) {
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerMinute("minute", 1))
	if _, err := limiter.Allow(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	away := newLimiter(t, broken{ratelimit.ErrUnavailable}, ratelimit.PerMinute("minute", 1))
	refuse := httplimit.WithRefusal(
		func(w http.ResponseWriter, _ *http.Request, d httplimit.Decision) {
			httplimit.Refuse(w, d)
		})
	for _, tt := range []struct {
		name    string
		limiter *ratelimit.Limiter
		opts    []httplimit.Option
		least   int
		values  int // how many times are told
	}{
		{"none", limiter, nil, 60, 1},
		{"a tenth", limiter, []httplimit.Option{httplimit.WithRetryJitter(0.1)}, 60, 7},
		{"one's own refusal", limiter,
			[]httplimit.Option{httplimit.WithRetryJitter(0.1), refuse}, 60, 7},
		{"undecided", away, []httplimit.Option{httplimit.WithRetryJitter(0.1)}, 1, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := httplimit.New(httplimit.PerKey(tt.limiter, secretKey), tt.opts...)(passed)
			told := make(map[int]bool)
			for range 500 { // misses one of 7 values once in 10³² runs
				res := serve(h, get())
				seconds, err := strconv.Atoi(res.Header.Get("Retry-After"))
				limits := res.Header.Get("RateLimit")
				if err != nil || seconds < tt.least || seconds >= tt.least+tt.values ||
					tt.limiter == limiter && !strings.Contains(limits, "t=60") {
					t.Fatalf("%d %v", res.StatusCode, res.Header)
				}
				told[seconds] = true
			}
			if len(told) != tt.values {
				t.Errorf("told %v, want %d values", told, tt.values)
			}
		})
	}
	var exact error
	h := httplimit.New(httplimit.PerKey(limiter, secretKey), httplimit.WithRetryJitter(1),
		httplimit.WithRefusal(func(_ http.ResponseWriter, _ *http.Request, d httplimit.Decision) {
			if d.RetryAfter().Seconds() != 60 {
				exact = errors.New(d.RetryAfter().String())
			}
		}))(passed)
	serve(h, get())
	if exact != nil {
		t.Errorf("the decision says %v", exact)
	}
}
