// Package connectv1 lets middleware of net/http answer clients of version 1 of
// connectrpc.com/connect, whose interceptors run only when a message has been decoded.
//
//	limit := httplimit.New(choose, connectv1.WithErrors(""))
//	mux.Handle(greetv1connect.NewGreetServiceHandler(greeter))
//	http.ListenAndServe(addr, limit(mux))
//
// To limit what a client sends, use package [github.com/truewindow/ratelimit/upstream].
package connectv1

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/truewindow/ratelimit/connectlimit"
	"github.com/truewindow/ratelimit/connectlimit/internal/details"
	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/httplimit"
)

// Procedure is a key function whose key is the procedure of a call, such as
// "/acme.v1.Greeter/Hello". It is the path of the request, so other requests have keys that clients
// choose: use it around the handlers of services, not around a mux with a handler for "/".
func Procedure(r *http.Request) (string, error) { return r.URL.Path, nil }

// WithErrors makes middleware answer a call that is not passed on with an error of the caller's
// protocol: Connect, gRPC or gRPC-Web, as the package comment of connectlimit describes. Requests
// of no protocol are answered as usual. domain is that of each ErrorInfo, a name of the service
// such as its DNS name; "" is [connectlimit.DefaultDomain]. opts are those of the handlers.
//
// A Choose may return a [connect.Error], whose code the client gets, or an [httplimit.StatusError].
//
// The RetryInfo is the exact wait, also with [httplimit.WithRetryJitter].
//
// Only unary calls of Connect have a status of HTTP that says how they end, so
// [httplimit.WithCounting] gets 200 for all others.
func WithErrors(domain string, opts ...connect.HandlerOption) httplimit.Option {
	domain = cmp.Or(domain, connectlimit.DefaultDomain)
	writer := connect.NewErrorWriter(opts...)
	return httplimit.WithRefusal(
		func(w http.ResponseWriter, r *http.Request, d httplimit.Decision) {
			if !writer.IsSupported(r) {
				httplimit.Refuse(w, d)
				return
			}
			_ = writer.Write(w, r, errorOf(r, domain, d)) // it fails only if the client has left
		})
}

// errorOf returns the error of a request that is not passed on.
func errorOf(r *http.Request, domain string, d httplimit.Decision) error {
	refusal := d.Refusal()
	s := refusal.Status(0)
	code := connect.Code(s.Code)
	var coded *connect.Error
	switch {
	case refusal.Reason == edge.Ended && errors.Is(r.Context().Err(), context.DeadlineExceeded):
		code = connect.CodeDeadlineExceeded
	case refusal.Reason == edge.Ended:
		code = connect.CodeCanceled
	case errors.As(d.Err, &coded):
		code = coded.Code()
	case refusal.Reason == edge.Unattributed && d.Status() == http.StatusUnauthorized:
		code = connect.CodeUnauthenticated
	case refusal.Reason == edge.Unattributed && d.Status() == http.StatusForbidden:
		code = connect.CodePermissionDenied
	}
	err := connect.NewError(code, errors.New(s.Message))
	for _, m := range details.Of(s, domain) {
		if detail, packing := connect.NewErrorDetail(m); packing == nil {
			err.AddDetail(detail)
		}
	}
	return err
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
		if m, err := detail.Value(); err == nil {
			messages = append(messages, m)
		}
	}
	r := details.Refusal(messages)
	return r, r.Reason != 0
}
