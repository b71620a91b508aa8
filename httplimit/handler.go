// Package httplimit puts a [ratelimit.Limiter] in front of an [http.Handler].
//
//	handler := httplimit.Handler(limiter, httplimit.RemoteAddr, httplimit.Refuse, mux)
//
// A request costs one unit of the key that a [KeyFunc] finds for it. It is passed on when the limiter admits it, and otherwise
// answered with problem details (RFC 9457) that no cache may store:
//
//   - 429 with Retry-After, in whole seconds rounded up, when the limiter refuses. The type is the registered one,
//     #quota-exceeded, and violated-policies lists the names of the limits that refused.
//   - 503 when the request is undecided, since the store is away, and the [Policy] is [Refuse].
//   - 503 when the request's context has ended, whatever the policy: nobody waits for an answer.
//   - 400 when the request cannot be attributed: its KeyFunc returned an error or no key.
//   - 500 when the limiter can decide no request at all, which is a mistake in how it was set up.
//
// No answer holds a key or the text of an error.
package httplimit

import (
	"errors"
	"net/http"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/internal/problem"
)

// A Policy tells what happens to a request that is undecided because the store is away. There is no default: the zero Policy
// is not one.
type Policy uint8

const (
	// Refuse answers undecided requests with 503. What the limit protects stays protected, and is away while the store is.
	Refuse Policy = iota + 1
	// Admit passes undecided requests on. There is no limit while the store is away.
	Admit
)

// Handler returns a handler that passes to next the requests that limiter admits, one unit each, and refuses the others as
// the package comment tells. Requests that are undecided are up to policy.
//
// It panics if limiter, key or next is nil or policy is none of the constants. Requests that shall not be limited go round it.
func Handler(limiter *ratelimit.Limiter, key KeyFunc, policy Policy, next http.Handler) http.Handler {
	switch {
	case limiter == nil:
		panic("httplimit: no limiter")
	case key == nil:
		panic("httplimit: no key function")
	case policy != Refuse && policy != Admit:
		panic("httplimit: the policy is neither Refuse nor Admit")
	case next == nil:
		panic("httplimit: no handler")
	}
	return &handler{limiter, limiter.Limits(), key, policy, next}
}

type handler struct {
	limiter *ratelimit.Limiter
	limits  []ratelimit.Limit
	key     KeyFunc
	policy  Policy
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

func (h *handler) refuse(w http.ResponseWriter, results []ratelimit.Result, binding ratelimit.Result) {
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
	case h.policy == Admit:
		h.next.ServeHTTP(w, r)
	default:
		// How long the store will be away is not known: this is the shortest there is.
		problem.SetRetryAfter(w.Header(), 0)
		problem.Problem{
			Status: http.StatusServiceUnavailable,
			Detail: "Whether the request is within its limits cannot be decided at the moment.",
		}.Write(w)
	}
}
