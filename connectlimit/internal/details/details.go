// Package details has the details of errors, for both versions of Connect.
package details

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/truewindow/ratelimit/edge"
)

// Of returns the details of s, whose ErrorInfo has domain.
func Of(s edge.Status, domain string) (details []proto.Message) {
	if s.Reason != "" {
		details = append(details,
			&errdetails.ErrorInfo{Reason: s.Reason, Domain: domain, Metadata: s.Metadata})
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
	return details
}

// Refusal returns what the details of an error say, with a Reason of zero if they are not of this
// module.
func Refusal(details []proto.Message) (r edge.Refusal) {
	for _, detail := range details {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			r.Reason = edge.ParseInfo(d.GetReason())
		case *errdetails.QuotaFailure:
			for _, v := range d.GetViolations() {
				r.Limits = append(r.Limits, edge.RefusingLimit{})
				r.Limits[len(r.Limits)-1].Name = v.GetQuotaId()
			}
		case *errdetails.RetryInfo:
			r.RetryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	return r
}
