package envoy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
)

// failures has the status for each error of a decider, the most specific error first.
var failures = []struct {
	err    error
	code   codes.Code
	reason string
}{
	{ratelimit.ErrOutcomeUnknown, codes.Unavailable, "the store did not answer in time; units " +
		"may have been recorded"},
	{decision.ErrNoSet, codes.Unavailable, "no limits are loaded yet"},
	{ratelimit.ErrUnavailable, codes.Unavailable, "the store is unavailable; nothing was recorded"},
	{ratelimit.ErrInvalid, codes.InvalidArgument, "the descriptors have too many limits, or more " +
		"units than a limit can record"},
}

// fail returns the status for an error. The cause goes to the log, once a second, and not to Envoy.
func (s *Service) fail(ctx context.Context, domain string, err error) error {
	if ended := ctx.Err(); ended != nil {
		s.counts.ended.Add(1)
		return status.FromContextError(ended).Err()
	}
	s.counts.failed.Add(1)
	code, reason := codes.Internal, "unexpected error"
	for _, f := range failures {
		if errors.Is(err, f.err) {
			code, reason = f.code, f.reason
			break
		}
	}
	if ok, suppressed := s.failed.Pass(time.Now()); ok {
		s.config.Log.Error("call undecided", WithSetting(err, "protocol", "envoy",
			"domain", EscapeInvalid(domain), "error", err, "suppressed", suppressed)...)
	}
	return status.Error(code, reason)
}

// invalid counts a call that is wrong whatever the limits, logs one in a second, and returns err,
// which has no value of the call.
func (s *Service) invalid(domain string, err error) error {
	s.counts.invalid.Add(1)
	if ok, suppressed := s.wrong.Pass(time.Now()); ok {
		s.config.Log.Warn("call not valid, which Envoy admits by default", "protocol", "envoy",
			"domain", EscapeInvalid(domain[:min(len(domain), maxName)]), "error", err,
			"suppressed", suppressed)
	}
	return err
}

// EscapeInvalid returns s with each byte that is not UTF-8 as \x and two digits, such as \xff.
func EscapeInvalid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[0])
		} else {
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String()
}
