package headers

import (
	"fmt"
	"net/http"

	"github.com/truewindow/ratelimit"
)

// A Format is a form of the fields. It reads and writes itself as text: "draft-11", "draft-06",
// "x-delta", "x-epoch" or "none".
type Format uint8

// The formats. The older ones have room for one limit and write the one that binds
// ([ratelimit.Binding]).
const (
	// Draft11 is RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11.
	Draft11 Format = iota
	// Draft06 is RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset of draft 06. Reset is a
	// number of seconds.
	Draft06
	// XDelta is X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, with a Reset in
	// seconds from now.
	XDelta
	// XEpoch is XDelta with a Reset in seconds since the Unix epoch, on the clock of this process.
	XEpoch
	// None writes nothing.
	None

	numFormats
)

var formatNames = [numFormats]string{"draft-11", "draft-06", "x-delta", "x-epoch", "none"}

// String returns the name of the format, such as "draft-11".
func (f Format) String() string {
	if f >= numFormats {
		return fmt.Sprintf("format(%d)", uint8(f))
	}
	return formatNames[f]
}

// MarshalText returns the name of the format. An error wraps [ratelimit.ErrInvalidOptions].
func (f Format) MarshalText() ([]byte, error) {
	if f >= numFormats {
		return nil, fmt.Errorf("%w: %v is not a format", ratelimit.ErrInvalidOptions, f)
	}
	return []byte(formatNames[f]), nil
}

// UnmarshalText reads the name of a format. An error wraps [ratelimit.ErrInvalidOptions].
func (f *Format) UnmarshalText(text []byte) error {
	for i, name := range formatNames {
		if string(text) == name {
			*f = Format(i)
			return nil
		}
	}
	return fmt.Errorf("%w: %q is not a format: want draft-11, draft-06, x-delta, x-epoch or none",
		ratelimit.ErrInvalidOptions, text)
}

// exposed are the names of the fields of each format, as clients know them.
var exposed = [numFormats]string{
	Draft11: "RateLimit-Policy, RateLimit, Retry-After",
	Draft06: "RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, Retry-After",
	XDelta:  "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After",
	XEpoch:  "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After",
	None:    "Retry-After",
}

// Expose adds the names of the fields, Retry-After included, to Access-Control-Expose-Headers, so
// that scripts of other origins can read them. It writes nothing for an unknown format.
func Expose(h http.Header, f Format) {
	if f < numFormats {
		h.Add("Access-Control-Expose-Headers", exposed[f])
	}
}
