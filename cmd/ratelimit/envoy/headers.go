package envoy

import (
	"fmt"
	"strconv"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// Headers are the names of header fields about the limit that is nearest to being exceeded.
type Headers struct {
	Limit     string // how many units it admits
	Remaining string // how many are left
	Reset     string // seconds until the call is admitted, or until all units are free
}

// DefaultHeaders are the names of envoyproxy/ratelimit.
func DefaultHeaders() Headers {
	return Headers{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}
}

// check returns an error if a name is not one of a header field.
func (h *Headers) check() error {
	if h == nil {
		return nil
	}
	for _, name := range []string{h.Limit, h.Remaining, h.Reset} {
		if !isToken(name) {
			return fmt.Errorf("envoy: %q is not the name of a header field", name)
		}
	}
	return nil
}

func isToken(s string) bool {
	isOther := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') &&
			!strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	}
	return s != "" && !strings.ContainsFunc(s, isOther)
}

// of returns the fields about v: none if there is no limit, no Reset if that is never, and no
// Remaining if a limit that has units was not asked how many are left.
func (h *Headers) of(v view) []*core.HeaderValue {
	if h == nil || v.rank == nothing {
		return nil
	}
	fields := []*core.HeaderValue{
		header(h.Limit, strconv.FormatUint(uint64(clamp(v.Rate.Units)), 10)),
	}
	if v.Asked || v.Rate.Units == 0 {
		remaining := strconv.FormatUint(uint64(clamp(v.Result.Remaining)), 10)
		fields = append(fields, header(h.Remaining, remaining))
	}
	if seconds, ok := v.seconds(); ok {
		fields = append(fields, header(h.Reset, strconv.FormatInt(seconds, 10)))
	}
	return fields
}

func header(name, value string) *core.HeaderValue {
	return &core.HeaderValue{Key: name, Value: value}
}
