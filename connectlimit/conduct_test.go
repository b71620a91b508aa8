package connectlimit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/connectlimit"
	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/internal/testkit/adaptertest"
)

// protocols are the options of clients.
var protocols = map[string][]connecthttp.Option{
	"connect":      nil,
	"connect json": {connecthttp.WithSendCodec(connect.CodecNameJSON)},
	"grpc":         {connecthttp.WithGRPC()},
	"grpc-web":     {connecthttp.WithGRPCWeb()},
}

var kinds = []connect.StreamType{connect.StreamTypeUnary, connect.StreamTypeClient,
	connect.StreamTypeServer, connect.StreamTypeBidi}

// TestConduct: the interceptors have the conduct of all adapters, in all protocols, for unary calls
// and each kind of stream.
func TestConduct(t *testing.T) {
	for protocol, opts := range protocols {
		for _, kind := range kinds {
			t.Run("server, "+protocol+", "+kind.String(), func(t *testing.T) {
				t.Parallel()
				adaptertest.Run(t, adaptertest.Adapter{
					Serve: func(t testing.TB, s adaptertest.Service) adaptertest.Call {
						server := newServer(s.Work, recovering,
							connectlimit.ServerInterceptor(chosen(s), conductOptions(s)...))
						return conductCall(newClient(serve(t, server), opts), kind)
					},
					Lacks: map[string]string{"wait": "a server does not wait"},
				})
			})
		}
	}
	for _, kind := range kinds {
		t.Run("client, "+kind.String(), func(t *testing.T) {
			t.Parallel()
			adaptertest.Run(t, adaptertest.Adapter{
				Serve: func(t testing.TB, s adaptertest.Service) adaptertest.Call {
					url := serve(t, newServer(s.Work, recovering))
					return conductCall(newClient(url, nil,
						connectlimit.ClientInterceptor(chosen(s), conductOptions(s)...)), kind)
				},
			})
		})
	}
}

const wordHeader = "Word"

// chosen returns the Choose of s. The word is in a header.
func chosen(s adaptertest.Service) connectlimit.Choose {
	return func(ctx context.Context, _ string, _ any) ([]ratelimit.Claim, error) {
		info, ok := connect.CallInfoForServerContext(ctx)
		if !ok {
			info, _ = connect.CallInfoForClientContext(ctx)
		}
		return s.Choose(info.RequestHeader().Get(wordHeader))
	}
}

func conductOptions(s adaptertest.Service) (opts []connectlimit.Option) {
	if s.Counting {
		opts = append(opts, connectlimit.WithCounting(succeeded))
	}
	if s.Wait {
		opts = append(opts, connectlimit.WithWait())
	}
	return opts
}

func succeeded(code connect.Code) bool { return code == 0 }

// specOf returns the procedure of a kind.
func specOf(kind connect.StreamType) connect.Spec {
	return connect.Spec{
		StreamType: kind, Procedure: "/test.Echo/" + strings.ReplaceAll(kind.String(), " ", "-"),
	}
}

// newServer returns a server with a procedure of each kind, which works when it has received what
// the client sends, and answers with the last message.
func newServer(
	work func(context.Context) error, interceptors ...connect.ServerInterceptor,
) *connect.Server {
	server := connect.NewServer(interceptors...)
	for _, kind := range kinds {
		server.Register(connect.Method{Spec: specOf(kind), Handler: func(
			ctx context.Context, spec connect.Spec, stream connect.ServerStream,
		) error {
			m := new(wrapperspb.StringValue)
			for spec.StreamType&connect.StreamTypeClient != 0 {
				if err := stream.Receive(m); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					return err
				}
			}
			if spec.StreamType&connect.StreamTypeClient == 0 {
				if err := stream.Receive(m); err != nil {
					return err
				}
			}
			if err := work(ctx); err != nil {
				return connect.NewError(connect.CodeAborted, "failed").WithCause(err)
			}
			return stream.Send(m)
		}})
	}
	return server
}

// recovering lets a server go on after a panic of a handler.
func recovering(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, s connect.ServerStream) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = connect.NewError(connect.CodeUnknown, "panic")
			}
		}()
		return next(ctx, spec, s)
	}
}

// serve starts an HTTP server, and returns its URL.
func serve(t testing.TB, server *connect.Server, opts ...connecthttp.Option) string {
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server, opts...)
	return adaptertest.ServeHTTP(t, mux)
}

// newClient returns a client over HTTP/2.
func newClient(
	url string, opts []connecthttp.Option, interceptors ...connect.ClientInterceptor,
) *connect.Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	return connect.NewClient(
		connecthttp.NewTransport(&http.Client{Transport: transport}, url, opts...),
		interceptors...)
}

// conductCall returns a call of the procedure of a kind.
func conductCall(c *connect.Client, kind connect.StreamType) adaptertest.Call {
	return func(ctx context.Context, word string) adaptertest.Answer {
		ctx, info := connect.NewClientContext(ctx)
		info.RequestHeader().Set(wordHeader, word)
		return answerOf(call(ctx, c, kind))
	}
}

// call calls the procedure of a kind with one message, and receives all that it answers.
func call(ctx context.Context, c *connect.Client, kind connect.StreamType) error {
	in, out := wrapperspb.String("hello"), new(wrapperspb.StringValue)
	spec := specOf(kind)
	if kind == connect.StreamTypeUnary {
		return c.CallUnary(ctx, spec, in, out)
	}
	if kind == connect.StreamTypeServer {
		stream, err := c.CallServerStream(ctx, spec, in)
		if err != nil {
			return err
		}
		return receive(stream, true)
	}
	stream, err := c.CallClientStream(ctx, spec)
	if err != nil {
		return err
	}
	if err := stream.Send(in); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return receive(stream, kind == connect.StreamTypeBidi)
}

// receive receives one message, or all.
func receive(stream connect.ClientStream, all bool) error {
	for {
		err := stream.Receive(new(wrapperspb.StringValue))
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil || !all:
			return err
		}
	}
}

// answerOf reads an error of package connectlimit.
func answerOf(err error) (a adaptertest.Answer) {
	if err == nil {
		return a
	}
	a.Text = err.Error()
	r, _ := connectlimit.RefusalOf(err)
	a.Reason, a.RetryAfter = r.Reason, r.RetryAfter
	for _, limit := range r.Limits {
		a.Limits = append(a.Limits, limit.Name)
	}
	var coded *connect.Error
	switch {
	case a.Reason != 0:
	case !errors.As(err, &coded):
		a.Failed = true
	case coded.Code() == connect.CodeInvalidArgument:
		a.Reason = edge.Unattributed
	case coded.Code() == connect.CodeInternal:
		a.Reason = edge.Misconfigured
	default:
		a.Failed = true
	}
	return a
}
