package httplimit

import (
	"errors"
	"net/http"
	"time"

	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// Refuse answers a request that is not passed on, as the package comment describes: with problem
// details and, if waiting helps, Retry-After, unless that is set already. It does not write the
// fields of package headers. Do not call it for a request that is allowed: it would answer with
// 500.
func Refuse(w http.ResponseWriter, d Decision) {
	if w.Header().Get("Retry-After") == "" {
		setRetryAfter(w.Header(), d, 0)
	}
	refuse(w, nil, d)
}

func refuse(w http.ResponseWriter, _ *http.Request, d Decision) {
	var room [2]string
	d.problem(room[:0]).Write(w)
}

func setRetryAfter(h http.Header, d Decision, jitter float64) {
	if wait := d.RetryAfter(); wait > 0 {
		problem.SetRetryAfter(h, edge.Jitter(wait, time.Second, jitter))
	}
}

// problem returns the problem details of a request that is not passed on. It appends the names of
// the limits that refuse to names.
func (d Decision) problem(names []string) problem.Problem {
	p := problem.Problem{Status: d.Status()}
	if d.Err == nil {
		p.ViolatedPolicies = d.violated(names)
	} else if errors.Is(d.Err, ErrUnattributed) && !d.ended && p.Status != 500 {
		p.Detail = "The server cannot determine whose limits apply to the request."
		return p
	}
	switch p.Status {
	case http.StatusTooManyRequests:
		p.Type, p.Title = problem.QuotaExceeded, "Quota Exceeded"
		if d.blocked() {
			p.Type, p.Title = problem.AbnormalUsage, "Abnormal Usage Detected"
		}
	case http.StatusServiceUnavailable:
		if d.ended {
			return p
		}
		p.Type, p.Title = problem.ReducedCapacity, "Temporary Reduced Capacity"
		if d.Err != nil {
			p.Detail = "The limits of the request cannot be checked at the moment."
		} else {
			p.Detail = "The limits are lower than usual at the moment."
		}
	case http.StatusUnprocessableEntity:
		p.Detail = "The request costs more than one of its limits ever admits."
	case http.StatusOK:
		p.Status = http.StatusInternalServerError
	}
	return p
}
