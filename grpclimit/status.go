package grpclimit

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// DefaultDomain is the domain of an ErrorInfo, unless [WithDomain] sets another.
const DefaultDomain = "github.com/truewindow/ratelimit"

// The reasons of an ErrorInfo.
const (
	// ReasonExceeded means that a limit refuses the call. The names of the limits that refuse are
	// in the metadata under [MetadataLimits].
	ReasonExceeded = "RATE_LIMIT_EXCEEDED"
	// ReasonBlocked means the same, and that at least one of these limits is a block
	// ([WithBlocks]).
	ReasonBlocked = "RATE_LIMIT_BLOCKED"
	// ReasonReduced means that every limit that refuses the call is one that a degraded store has
	// reduced ([ratelimit.SourceLocal]). The names of these limits are under [MetadataLimits]. The
	// call may be within the real limits.
	ReasonReduced = "RATE_LIMIT_REDUCED"
	// ReasonUndecided means that the store is unavailable, so the limits of the call cannot be
	// checked.
	ReasonUndecided = "RATE_LIMIT_UNDECIDED"
)

// The keys of the metadata of an ErrorInfo.
const (
	// MetadataLimits has the names of the limits that refuse, separated by commas.
	MetadataLimits = "limits"
	// MetadataOrigin is "client" if an interceptor of a client made the error and the call was not
	// sent. Otherwise it is absent. A server that returns such an error to its own caller sends
	// this metadata too; see [IsLocal].
	MetadataOrigin = "origin"
)

// originClient is the value of MetadataOrigin.
const originClient = "client"

// IsLocal reports whether a client's interceptor in this process made err. If so, the call or the
// message was not sent, and its server did not refuse it. Earlier attempts may have been.
func IsLocal(err error) bool {
	var local *localError
	return errors.As(err, &local)
}

// localError is a status that a client's interceptor made. The type is lost when the status is sent
// to another process, so the error is not local there.
type localError struct{ status *status.Status }

func (e *localError) Error() string { return e.status.Err().Error() }

// GRPCStatus returns the status; [status.FromError] calls it.
func (e *localError) GRPCStatus() *status.Status { return e.status }

// Is reports whether target is the same status.
func (e *localError) Is(target error) bool { return errors.Is(e.status.Err(), target) }

// refusal is why a call is refused.
type refusal struct {
	violations []*errdetails.QuotaFailure_Violation
	delay      time.Duration // until the call may be admitted; 0 if not known or never
	blocked    bool          // a limit that refuses is a block
	reduced    bool          // a degraded store has reduced all limits that refuse
}

// refused returns the error of a call that is refused.
func (e *interceptor) refused(r refusal) error {
	names := make([]string, len(r.violations))
	for i, v := range r.violations {
		names[i] = v.GetQuotaId()
	}
	limits := strings.Join(names, ",")
	code, reason, message := codes.ResourceExhausted, ReasonExceeded, "rate limit exceeded: "
	switch {
	case r.reduced:
		code, reason = codes.Unavailable, ReasonReduced
		message = "the limits are lower than usual at the moment: "
	case r.blocked:
		reason, message = ReasonBlocked, "blocked: "
	}
	details := []protoadapt.MessageV1{e.info(reason, map[string]string{MetadataLimits: limits})}
	if !r.reduced {
		details = append(details, &errdetails.QuotaFailure{Violations: r.violations})
	}
	if r.delay > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(r.delay)})
	}
	return e.fail(code, message+limits, details...)
}

// info returns an ErrorInfo.
func (e *interceptor) info(reason string, metadata map[string]string) *errdetails.ErrorInfo {
	if e.side == client {
		if metadata == nil {
			metadata = make(map[string]string, 1)
		}
		metadata[MetadataOrigin] = originClient
	}
	return &errdetails.ErrorInfo{Reason: reason, Domain: e.domain, Metadata: metadata}
}

// fail returns the error of a call that is not passed on.
func (e *interceptor) fail(code codes.Code, message string, details ...protoadapt.MessageV1) error {
	s := status.New(code, message)
	if len(details) > 0 {
		if with, err := s.WithDetails(details...); err == nil {
			s = with
		}
	}
	if e.side == client {
		return &localError{s}
	}
	return s.Err()
}

// codeOf returns the code that a client gets if a handler returns err.
func codeOf(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}

func violation(name string, most int64, description string) *errdetails.QuotaFailure_Violation {
	return &errdetails.QuotaFailure_Violation{
		QuotaId: name, QuotaValue: most, Description: description,
	}
}

func rate(most int64, window time.Duration) string {
	return fmt.Sprintf("at most %d in any %v", most, window)
}

func atOnce(most int64) string { return fmt.Sprintf("at most %d at once", most) }
