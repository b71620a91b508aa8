package headers

import (
	"fmt"
	"net/http"

	"github.com/truewindow/ratelimit"
)

// A Format is a format of the fields. Its text form is "draft-11", "draft-06", "x-delta", "x-epoch"
// or "none". The zero Format is [Draft11].
type Format uint8

// The formats. Draft11 describes all limits. The older formats describe only the limit that binds
// ([ratelimit.Binding]).
const (
	// Draft11 is RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11.
	Draft11 Format = iota
	// Draft06 is RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset of draft 06, with Reset
	// in seconds from now.
	Draft06
	// XDelta is X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, with Reset in
	// seconds from now.
	XDelta
	// XEpoch is XDelta with Reset in seconds since the Unix epoch, on the clock of this process.
	XEpoch
	// None has no fields.
	None

	numFormats
)

var formatNames = [numFormats]string{"draft-11", "draft-06", "x-delta", "x-epoch", "none"}

// String returns the text form of the format, such as "draft-11", or "format(9)" for an unknown
// format.
func (f Format) String() string {
	if f >= numFormats {
		return fmt.Sprintf("format(%d)", uint8(f))
	}
	return formatNames[f]
}

// MarshalText returns the text form of the format. For an unknown format it returns an error that
// wraps [ratelimit.ErrInvalid].
func (f Format) MarshalText() ([]byte, error) {
	if f >= numFormats {
		return nil, fmt.Errorf("%w options: %v is not a format", ratelimit.ErrInvalid, f)
	}
	return []byte(formatNames[f]), nil
}

// UnmarshalText reads the text form of a format. For any other text it returns an error that wraps
// [ratelimit.ErrInvalid].
func (f *Format) UnmarshalText(text []byte) error {
	for i, name := range formatNames {
		if string(text) == name {
			*f = Format(i)
			return nil
		}
	}
	return fmt.Errorf(
		"%w options: %q is not a format: want draft-11, draft-06, x-delta, x-epoch or none",
		ratelimit.ErrInvalid, text)
}

// exposed has the names of the fields of each format, in their usual spelling.
var exposed = [numFormats]string{
	Draft11: "RateLimit-Policy, RateLimit, Retry-After",
	Draft06: "RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, Retry-After",
	XDelta:  "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After",
	XEpoch:  "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After",
	None:    "Retry-After",
}

// Expose adds the names of the fields of f, and Retry-After, to Access-Control-Expose-Headers in h,
// so that browser scripts of other origins (CORS) can read them. It adds nothing for an unknown
// format.
func Expose(h http.Header, f Format) {
	if f < numFormats {
		h.Add("Access-Control-Expose-Headers", exposed[f])
	}
}
