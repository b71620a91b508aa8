// Package httplimit puts a [ratelimit.Limiter] in front of an [http.Handler].
//
//	handler := httplimit.Handler(limiter, httplimit.RemoteAddr, mux)
//
// A request costs one unit of the key that a [KeyFunc] finds for it. It is passed on when the
// limiter admits it, and otherwise answered with problem details (RFC 9457) that no cache may
// store:
//
//   - 429 with Retry-After, in whole seconds rounded up, when the limiter refuses. The type is the
//     registered one, #quota-exceeded, and violated-policies lists the names of the limits that
//     refused.
//   - 503 when the limiter leaves the request undecided: the store is unavailable and the limiter's
//     policy does not admit it (see [ratelimit.Limiter.With]), or the request's context has ended.
//   - 400 when the request cannot be attributed: its KeyFunc returned an error or no key.
//   - 500 when the limiter can decide no request at all, which is a mistake in its configuration.
//
// No answer holds a key or the text of an error.
package httplimit

import (
	"errors"
	"net/http"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/internal/problem"
)

// Handler returns a handler that passes to next the requests that limiter admits, one unit each,
// and answers the others as the package comment describes.
//
// It panics if limiter, key or next is nil. Route requests that are not limited around it.
func Handler(limiter *ratelimit.Limiter, key KeyFunc, next http.Handler) http.Handler {
	switch {
	case limiter == nil:
		panic("httplimit: no limiter")
	case key == nil:
		panic("httplimit: no key function")
	case next == nil:
		panic("httplimit: no handler")
	}
	return &handler{limiter, limiter.Limits(), key, next}
}

type handler struct {
	limiter *ratelimit.Limiter
	limits  []ratelimit.Limit
	key     KeyFunc
	next    http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, err := h.key(r)
	if err != nil || key == "" {
		problem.Problem{
			Status: http.StatusBadRequest,
			Detail: "The request cannot be attributed to anyone whose requests are limited.",
		}.Write(w)
		return
	}
	var room [4]ratelimit.Result // keeps the results of up to four limits off the heap
	results, err := h.limiter.AllowEach(r.Context(), key, 1, room[:0])
	if err != nil {
		h.undecided(w, r, err)
		return
	}
	binding := results[ratelimit.Binding(results)]
	if !binding.Allowed {
		h.refuse(w, results, binding)
		return
	}
	h.next.ServeHTTP(w, r)
}

func (h *handler) refuse(
	w http.ResponseWriter, results []ratelimit.Result, binding ratelimit.Result,
) {
	p := problem.Problem{
		Type:   problem.QuotaExceeded,
		Title:  "Quota Exceeded",
		Status: http.StatusTooManyRequests,
	}
	for i := range results {
		if !results[i].Allowed {
			p.ViolatedPolicies = append(p.ViolatedPolicies, h.limits[i].Name)
		}
	}
	problem.SetRetryAfter(w.Header(), binding.RetryAfter)
	p.Write(w)
}

func (h *handler) undecided(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case r.Context().Err() != nil:
		problem.Problem{Status: http.StatusServiceUnavailable}.Write(w)
	case !errors.Is(err, ratelimit.ErrUnavailable):
		problem.Problem{Status: http.StatusInternalServerError}.Write(w)
	default:
		// How long the store will be away is not known: this is the shortest there is.
		problem.SetRetryAfter(w.Header(), 0)
		problem.Problem{
			Status: http.StatusServiceUnavailable,
			Detail: "Whether the request is within its limits cannot be decided at the moment.",
		}.Write(w)
	}
}
