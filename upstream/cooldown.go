package upstream

import (
	"context"
	"net/http"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/httplimit/headers"
)

// coolDown begins a cool-down if the answer requires one. The observer gets an error of the store;
// the caller gets the answer in any case. It does not end with ctx, since the cool-down concerns
// other callers too.
func (t *Transport) coolDown(ctx context.Context, key string, res *http.Response) {
	pause, ok := pauseOf(res, time.Now())
	if !ok {
		pause, ok = t.bodyPause(ctx, res)
	}
	if !ok {
		pause = t.options.CoolDown(res)
	}
	if pause = min(pause, t.options.MaxCoolDown); pause > 0 {
		_, _ = t.cooling.Force(context.WithoutCancel(ctx), key, algorithm.BlockFor(pause))
	}
}

// afterRefusal is the default of [Options.CoolDown].
func afterRefusal(res *http.Response) time.Duration {
	if res.StatusCode == http.StatusTooManyRequests {
		return DefaultCoolDown
	}
	return 0
}

// pauseOf returns for how long no request may be sent according to the answer, or false if it does
// not say. Retry-After has precedence over quotas.
func pauseOf(res *http.Response, now time.Time) (pause time.Duration, ok bool) {
	if refuses(res.StatusCode) {
		if wait, ok := headers.RetryAfter(res.Header, now); ok {
			return wait, true
		}
	}
	for _, q := range headers.Parse(res.Header, now) {
		switch {
		case q.Remaining != 0, q.Unit == headers.ConcurrentRequests:
			// Units are left, or one is free again as soon as a call ends.
		case q.Limit == 0 && res.StatusCode != http.StatusTooManyRequests:
			// Nothing was refused: some upstreams send 0 of 0 where no limit applies.
		default:
			pause = max(pause, q.Reset)
		}
	}
	return pause, pause > 0
}

// bodyPause returns what BodyWait finds in the body of a refusal. It leaves the body as it was.
func (t *Transport) bodyPause(ctx context.Context, res *http.Response) (time.Duration, bool) {
	if t.options.BodyWait == nil || !refuses(res.StatusCode) ||
		res.Header.Get("Content-Encoding") != "" || res.Body == nil || res.Body == http.NoBody {
		return 0, false
	}
	return t.options.BodyWait(res.StatusCode, readAhead(ctx, res))
}

// refuses reports whether an answer with the status may say how long to wait.
func refuses(status int) bool {
	return status == http.StatusForbidden || status == http.StatusTooManyRequests ||
		status == http.StatusServiceUnavailable
}
