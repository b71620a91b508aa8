package grpclimit

import (
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/truewindow/ratelimit/edge"
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
	MetadataLimits = edge.MetadataLimits
	// MetadataOrigin is "client" if an interceptor of a client made the error and the call was not
	// sent. Otherwise it is absent. A server that returns such an error to its own caller sends
	// this metadata too; see [IsLocal].
	MetadataOrigin = edge.MetadataOrigin
)

// IsLocal reports whether a client's interceptor in this process made err. If so, the call or the
// message was not sent, and its server did not refuse it. Earlier attempts may have been.
func IsLocal(err error) bool {
	var failed *callError
	return errors.As(err, &failed) && failed.side == client
}

// callError is a status that an interceptor made. The type is lost when the status is sent to
// another process, so the error of a client is not local there.
type callError struct {
	status *status.Status
	side   side
	cause  error // which is not sent, or nil
}

func (e *callError) Error() string { return e.status.Err().Error() }

// GRPCStatus returns the status; [status.FromError] calls it.
func (e *callError) GRPCStatus() *status.Status { return e.status }

// Is reports whether target is the same status.
func (e *callError) Is(target error) bool { return errors.Is(e.status.Err(), target) }

// Unwrap returns why the call was not decided.
func (e *callError) Unwrap() error { return e.cause }

// refused returns the error of a call that is refused, but for one whose context has ended. cause
// is why it was not decided, or nil.
func (e *interceptor) refused(r edge.Refusal, cause error) error {
	s := r.Status(e.jitter)
	var details []protoadapt.MessageV1
	if s.Reason != "" {
		if e.side == client {
			s.Metadata[edge.MetadataOrigin] = edge.OriginClient
		}
		details = append(details,
			&errdetails.ErrorInfo{Reason: s.Reason, Domain: e.domain, Metadata: s.Metadata})
	}
	if s.Violations != nil {
		failure := new(errdetails.QuotaFailure)
		for _, v := range s.Violations {
			failure.Violations = append(failure.Violations, &errdetails.QuotaFailure_Violation{
				QuotaId: v.Limit, QuotaValue: v.Max, Description: v.Description,
			})
		}
		details = append(details, failure)
	}
	if s.RetryDelay > 0 {
		details = append(details,
			&errdetails.RetryInfo{RetryDelay: durationpb.New(s.RetryDelay)})
	}
	return e.fail(codes.Code(s.Code), s.Message, cause, details...)
}

// fail returns the error of a call that is not passed on.
func (e *interceptor) fail(
	code codes.Code, message string, cause error, details ...protoadapt.MessageV1,
) error {
	s := status.New(code, message)
	if len(details) > 0 {
		if with, err := s.WithDetails(details...); err == nil {
			s = with
		}
	}
	return &callError{s, e.side, cause}
}

// codeOf returns the code that a client gets if a handler returns err.
func codeOf(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}
