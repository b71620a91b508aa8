package upstream

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
)

// coolDown begins a cool-down if the answer asks for one. Its observer hears of an error; the
// answer goes to the caller whatever happens here. The caller's leaving does not end it, since
// others have to know.
func (t *Transport) coolDown(ctx context.Context, key string, res *http.Response) {
	now := time.Now()
	pause := usedUp(res.Header, now)
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		pause = max(pause, retryAfter(res.Header, now))
	}
	pause = min(pause, t.options.MaxCoolDown)
	if pause > 0 {
		_, _ = t.cooling.Force(context.WithoutCancel(ctx), key, algorithm.BlockFor(pause))
	}
}

// retryAfter returns the time of Retry-After, which is in seconds or a date, or 0.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if at, err := http.ParseTime(value); err == nil {
		return at.Sub(now)
	}
	return time.Duration(seconds(value)) * time.Second
}

// usedUp returns when a quota that is used up is renewed, or 0.
func usedUp(h http.Header, now time.Time) (longest time.Duration) {
	if seconds(h.Get("Age")) > 0 { // out of a cache
		return 0
	}
	for _, prefix := range []string{"RateLimit-", "X-RateLimit-"} {
		if h.Get(prefix+"Remaining") != "0" {
			continue
		}
		reset := seconds(h.Get(prefix + "Reset"))
		pause := time.Duration(reset) * time.Second
		if reset >= firstInstant {
			pause = time.Unix(reset, 0).Sub(now)
		}
		longest = max(longest, pause)
	}
	return longest
}

// firstInstant is the least reset that is an instant, in seconds since the Unix epoch. As a time
// from now it would be decades.
const firstInstant = 900_000_000

// seconds returns a number of seconds, 2^32-1 for a larger one, or 0 if s is none.
func seconds(s string) int64 {
	n, _ := strconv.ParseUint(s, 10, 32)
	return int64(n)
}
