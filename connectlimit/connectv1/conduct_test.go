package connectv1_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit/connectlimit/connectv1"
	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/internal/testkit/adaptertest"
)

type message = wrapperspb.StringValue

const unary, stream = "/test.Echo/Unary", "/test.Echo/Stream"

// TestConduct: middleware in front of handlers of version 1 has the conduct of all adapters, in all
// protocols, for unary calls and streams.
func TestConduct(t *testing.T) {
	for protocol, opts := range map[string][]connect.ClientOption{
		"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()},
	} {
		for _, procedure := range []string{unary, stream} {
			lacks := map[string]string{"wait": "a server does not wait"}
			if protocol != "connect" || procedure != unary {
				lacks["budget, failure"] = "the status of HTTP is 200"
				lacks["budget, disconnect"] = lacks["budget, failure"]
			}
			t.Run(protocol+procedure, func(t *testing.T) {
				t.Parallel()
				adaptertest.Run(t, adaptertest.Adapter{Lacks: lacks, Serve: func(
					t testing.TB, s adaptertest.Service,
				) adaptertest.Call {
					limit := adaptertest.Limit(s, connectv1.WithErrors(""))
					url := adaptertest.ServeHTTP(t, limit(handlers(s.Work)))
					return conductCall(t, url, procedure, opts)
				}})
			})
		}
	}
}

func handlers(work func(context.Context) error) http.Handler {
	done := func(ctx context.Context) error {
		if err := work(ctx); err != nil {
			return connect.NewError(connect.CodeAborted, errors.New("failed"))
		}
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle(unary, connect.NewUnaryHandler(unary, func(
		ctx context.Context, _ *connect.Request[message],
	) (*connect.Response[message], error) {
		return connect.NewResponse(new(message)), done(ctx)
	}))
	mux.Handle(stream, connect.NewServerStreamHandler(stream, func(
		ctx context.Context, _ *connect.Request[message], s *connect.ServerStream[message],
	) error {
		if err := done(ctx); err != nil {
			return err
		}
		return s.Send(new(message))
	}))
	return mux
}

func conductCall(
	t testing.TB, url, procedure string, opts []connect.ClientOption,
) adaptertest.Call {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	client := connect.NewClient[message, message](
		&http.Client{Transport: transport}, url+procedure, opts...)
	return func(ctx context.Context, word string) adaptertest.Answer {
		req := connect.NewRequest(wrapperspb.String("hello"))
		req.Header().Set(adaptertest.Word, word)
		if procedure == unary {
			_, err := client.CallUnary(ctx, req)
			return answerOf(err)
		}
		s, err := client.CallServerStream(ctx, req)
		if err != nil {
			return answerOf(err)
		}
		defer s.Close()
		for s.Receive() {
		}
		return answerOf(s.Err())
	}
}

// answerOf reads an error of package connectv1.
func answerOf(err error) (a adaptertest.Answer) {
	if err == nil {
		return a
	}
	a.Text = err.Error()
	r, _ := connectv1.RefusalOf(err)
	a.Reason, a.RetryAfter = r.Reason, r.RetryAfter
	for _, limit := range r.Limits {
		a.Limits = append(a.Limits, limit.Name)
	}
	switch code := connect.CodeOf(err); {
	case a.Reason != 0:
	case code == connect.CodeInvalidArgument:
		a.Reason = edge.Unattributed
	case code == connect.CodeInternal && strings.Contains(a.Text, "misconfigured"):
		a.Reason = edge.Misconfigured
	default:
		a.Failed = true
	}
	return a
}
