package connectlimit

import (
	"context"
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/proto"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/connectlimit/internal/details"
	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/httplimit/headers"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// DefaultDomain is the domain of an ErrorInfo, unless [WithDomain] sets another.
const DefaultDomain = "github.com/truewindow/ratelimit"

// IsLocal reports whether a client's interceptor in this process made err. If so, the call or the
// message was not sent, and its server did not refuse it.
func IsLocal(err error) bool {
	var local *localError
	return errors.As(err, &local)
}

// localError is an error that a client's interceptor made.
type localError struct{ err *connect.Error }

func (e *localError) Error() string { return e.err.Error() }

// Unwrap returns the error of package connect.
func (e *localError) Unwrap() error { return e.err }

// refused returns the error of a call that is refused, but for one whose context has ended. cause
// is why it was not decided, or nil.
func (e *interceptor) refused(r edge.Refusal, cause error) error {
	s := r.Status(e.jitter)
	if s.Reason != "" && e.side == client {
		s.Metadata[edge.MetadataOrigin] = edge.OriginClient
	}
	return e.fail(connect.Code(s.Code), s.Message, cause, details.Of(s, e.domain)...)
}

// fail returns the error of a call that is not passed on.
func (e *interceptor) fail(
	code connect.Code, message string, cause error, details ...proto.Message,
) error {
	err := connect.NewError(code, message).WithCause(cause)
	for _, detail := range details {
		if packed, packing := connectproto.NewErrorDetail(detail); packing == nil {
			err = err.WithDetail(packed)
		}
	}
	if e.side == client {
		return &localError{err}
	}
	return err
}

// ended returns the error of a call whose context has ended.
func (e *interceptor) ended(ctx context.Context) error {
	return e.fail(codeOf(ctx.Err()), "the call has ended before its limits were checked", ctx.Err())
}

// codeOf returns the code that a client gets if a handler returns err, or 0 for nil.
func codeOf(err error) connect.Code {
	if err == nil {
		return 0
	}
	var coded *connect.Error
	switch {
	case errors.As(err, &coded):
		return coded.Code()
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	}
	return connect.CodeUnknown
}

// describe writes the fields of HTTP about a refusal, in an answer of the Connect protocol to a
// unary call. All other answers have the status 200, and no client reads their fields.
func (e *interceptor) describe(
	ctx context.Context, spec connect.Spec, r edge.Refusal, claims []ratelimit.Claim,
	results []ratelimit.Result,
) {
	info, ok := connect.CallInfoForServerContext(ctx)
	if !ok || info.Protocol != connect.ProtocolNameConnect ||
		spec.StreamType != connect.StreamTypeUnary {
		return
	}
	h := make(http.Header)
	wait := r.RetryAfter
	if r.Reason == edge.Undecided {
		wait = time.Second // it is not known when the store recovers
	}
	if wait > 0 {
		problem.SetRetryAfter(h, edge.Jitter(wait, time.Second, e.jitter))
	}
	if results == nil {
		claims = nil
	}
	var items []headers.Item
	for i := range claims {
		for _, a := range claims[i].Limiter.Algorithms() {
			item := headers.Item{Result: results[0]}
			if edge.InFlight(a) {
				item.Unit = headers.ConcurrentRequests
			}
			if !e.blocks[a.Limit().Name] {
				items = append(items, item)
			}
			results = results[1:]
		}
	}
	headers.Write(h, headers.Draft11, items...)
	for name, values := range h {
		info.ResponseHeader().SetValues(name, values)
	}
}

// RefusalOf returns why a call was not passed on, from the error that its caller gets, or false if
// no limit is the reason. Of the limits that refuse it has the names.
func RefusalOf(err error) (edge.Refusal, bool) {
	var coded *connect.Error
	if !errors.As(err, &coded) {
		return edge.Refusal{}, false
	}
	var messages []proto.Message
	for _, detail := range coded.Details() {
		if m, err := connectproto.UnmarshalErrorDetail(detail); err == nil {
			messages = append(messages, m)
		}
	}
	r := details.Refusal(messages)
	return r, r.Reason != 0
}
