package edge

import (
	"fmt"
	"strings"
	"time"
)

// A Status is a Refusal in the terms of google.rpc.Status, which gRPC and Connect share. It has
// what the messages ErrorInfo, QuotaFailure and RetryInfo say.
type Status struct {
	Code       uint32 // of google.rpc.Code
	Message    string
	Reason     string            // of the ErrorInfo, or "" if there is none
	Metadata   map[string]string // of the ErrorInfo, not nil if there is one
	Violations []Violation       // of the QuotaFailure, or nil if there is none
	RetryDelay time.Duration     // of the RetryInfo, or 0 if there is none
}

// A Violation is a limit that refuses, in a QuotaFailure.
type Violation struct {
	Limit       string // its name
	Max         int64  // 0 for a block
	Description string
}

// The keys of the metadata of an ErrorInfo.
const (
	// MetadataLimits has the names of the limits that refuse, separated by commas.
	MetadataLimits = "limits"
	// MetadataOrigin is OriginClient if a client has made the error and has not sent the call.
	// Otherwise it is absent. A server that returns such an error to its own caller sends it too.
	MetadataOrigin = "origin"
)

// OriginClient is the value of MetadataOrigin.
const OriginClient = "client"

// The codes of google.rpc.Code.
const (
	codeInvalidArgument   = 3
	codeResourceExhausted = 8
	codeInternal          = 13
	codeUnavailable       = 14
)

var infos = [...]string{Exceeded: "RATE_LIMIT_EXCEEDED", Blocked: "RATE_LIMIT_BLOCKED",
	Reduced: "RATE_LIMIT_REDUCED", Never: "RATE_LIMIT_EXCEEDED", Undecided: "RATE_LIMIT_UNDECIDED"}

// Info returns the reason as an ErrorInfo of google.rpc has it, such as "RATE_LIMIT_EXCEEDED", or
// "" if it has none. [Never] has that of Exceeded.
func (r Reason) Info() string {
	if int(r) < len(infos) {
		return infos[r]
	}
	return ""
}

// ParseInfo returns the Reason with this Info, or the zero Reason if there is none.
func ParseInfo(info string) Reason {
	for i, text := range infos {
		if text == info && text != "" {
			return Reason(i)
		}
	}
	return 0
}

// Status returns r in the terms of google.rpc.Status. A client that is told to wait gets up to a
// share of jitter more; see [Jitter]. An r whose Reason is Ended has the code of its context
// instead.
func (r Refusal) Status(jitter float64) Status {
	s := Status{Code: codeResourceExhausted, Reason: r.Reason.Info()}
	switch r.Reason {
	case Undecided:
		s.Code, s.Message = codeUnavailable,
			"the limits of the call cannot be checked at the moment"
		s.Metadata = make(map[string]string, 1)
		return s
	case Unattributed:
		s.Code, s.Message = codeInvalidArgument,
			"cannot determine whose limits apply to the call"
		return s
	case Exceeded, Never:
		s.Message = "rate limit exceeded: "
	case Blocked:
		s.Message = "blocked: "
	case Reduced:
		s.Code, s.Message = codeUnavailable, "the limits are lower than usual at the moment: "
	default:
		s.Code, s.Message = codeInternal, "the limits of the call are misconfigured"
		return s
	}
	names := make([]string, len(r.Limits))
	for i, limit := range r.Limits {
		names[i] = limit.Name
		if r.Reason != Reduced {
			s.Violations = append(s.Violations, limit.violation())
		}
	}
	limits := strings.Join(names, ",")
	s.Message += limits
	s.Metadata = map[string]string{MetadataLimits: limits}
	if r.RetryAfter > 0 {
		s.RetryDelay = Jitter(r.RetryAfter, time.Millisecond, jitter)
	}
	return s
}

func (l RefusingLimit) violation() Violation {
	switch {
	case l.Blocked:
		return Violation{l.Name, 0, "blocked"}
	case l.InFlight:
		return Violation{l.Name, l.Max, fmt.Sprintf("at most %d at once", l.Max)}
	}
	return Violation{l.Name, l.Max, fmt.Sprintf("at most %d in any %v", l.Max, l.Window)}
}
