package httplimit

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/truewindow/ratelimit"
)

// Choose returns what a request costs: claims that are decided together, all of them or none. No
// claim means that the request is not limited. An error, or a claim with an empty key, means that
// the request cannot be attributed; the client does not get the text of the error. Many goroutines
// call it at once.
//
// The limiters of several claims must be on one store; see [ratelimit.AllowAll]. Limiters are made
// once and not for each request.
//
// Units that the client chooses need a check: [http.Request.ContentLength] is -1 for a body of
// unknown length, and a claim of negative units is answered with 500.
type Choose func(r *http.Request) ([]ratelimit.Claim, error)

// ErrUnattributed means that a request cannot be attributed to a key. A [Decision] has it when a
// [Choose] function returned an error, which it then wraps as well, or a claim without a key.
var ErrUnattributed = errors.New("httplimit: the request cannot be attributed")

// errNoKey is for a claim without a key.
var errNoKey = fmt.Errorf("%w: a claim has no key", ErrUnattributed)

// PerKey returns the Choose of one unit of limiter for the key of the request. It panics if limiter
// or key is nil.
func PerKey(limiter *ratelimit.Limiter, key KeyFunc) Choose {
	switch {
	case limiter == nil:
		panic("httplimit: no limiter")
	case key == nil:
		panic("httplimit: no key function")
	}
	return func(r *http.Request) ([]ratelimit.Claim, error) {
		k, err := key(r)
		if err != nil {
			return nil, err
		}
		return []ratelimit.Claim{{Limiter: limiter, Key: k, N: 1}}, nil
	}
}

// errTooMany is for more units than any limit has.
var errTooMany = fmt.Errorf("httplimit: a claim has too many units: %w", ratelimit.ErrExceedsLimit)

func checkClaims(claims []ratelimit.Claim) error {
	for i := range claims {
		switch {
		case claims[i].Key == "":
			return errNoKey
		case claims[i].N > ratelimit.MaxUnits:
			return errTooMany
		}
	}
	return nil
}
