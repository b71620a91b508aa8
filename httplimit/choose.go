package httplimit

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/truewindow/ratelimit"
)

// Choose returns what a request costs: claims that are admitted together or not at all. A request
// without claims is not limited. An error, or a claim with an empty key, means that the request
// cannot be attributed; a [StatusError] sets the status of the answer, and the client does not get
// the text of the error. A Choose must be safe for concurrent use.
//
// The limiters of all claims must be on one store; see [ratelimit.AllowAll]. Make limiters once,
// as [ratelimit.Limiter] says.
//
// Check units that depend on what the client sends: [http.Request.ContentLength] is -1 for a body
// of unknown length, and a claim of negative units is answered with 500.
type Choose func(r *http.Request) ([]ratelimit.Claim, error)

// ErrUnattributed means that a request cannot be attributed to a key: the [Choose] function
// returned an error, or a claim without a key. The Err of a [Decision] wraps it, and the error of
// Choose too.
var ErrUnattributed = errors.New("httplimit: the request cannot be attributed")

// A StatusError is an error of a [Choose] or a [KeyFunc] with the status of the answer, such as 401
// for a request without a valid token. A Status outside 400 to 599 is a mistake and answered with
// 500. Err may be nil; the client does not get its text. An answer with 401 needs the field
// WWW-Authenticate: set it in the function of [WithRefusal] or in a middleware around this one.
type StatusError struct {
	Status int
	Err    error
}

func (e *StatusError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("httplimit: status %d", e.Status)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *StatusError) Unwrap() error { return e.Err }

// errNoKey is for a claim without a key.
var errNoKey = fmt.Errorf("%w: a claim has no key", ErrUnattributed)

// PerKey returns a Choose that takes one unit of limiter for the key of the request. It panics if
// limiter or key is nil.
func PerKey(limiter *ratelimit.Limiter, key KeyFunc) Choose {
	switch {
	case limiter == nil:
		panic("httplimit: the limiter is nil")
	case key == nil:
		panic("httplimit: the key function is nil")
	}
	return func(r *http.Request) ([]ratelimit.Claim, error) {
		k, err := key(r)
		if err != nil {
			return nil, err
		}
		return []ratelimit.Claim{{Limiter: limiter, Key: k, N: 1}}, nil
	}
}
