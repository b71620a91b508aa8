package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/grpclimit"
	"github.com/truewindow/ratelimit/internal/testkit/adaptertest"
)

// TestConduct: the interceptors have the conduct of all adapters, on both sides, for unary calls
// and each kind of stream.
func TestConduct(t *testing.T) {
	kinds := map[string]*grpc.StreamDesc{
		"unary":         nil,
		"client stream": {StreamName: "Talk", ClientStreams: true},
		"server stream": {StreamName: "Talk", ServerStreams: true},
		"bidi stream":   talkDesc,
	}
	for name, desc := range kinds {
		t.Run("server, "+name, func(t *testing.T) {
			t.Parallel()
			adaptertest.Run(t, adaptertest.Adapter{
				Serve: func(t testing.TB, s adaptertest.Service) adaptertest.Call {
					return conductCall(start(t, serviceOf(s),
						append(recovering(), limited(chosen(s), conductOptions(s)...)...)), desc)
				},
				Lacks: map[string]string{"wait": "a server does not wait"},
			})
		})
		t.Run("client, "+name, func(t *testing.T) {
			t.Parallel()
			adaptertest.Run(t, adaptertest.Adapter{
				Serve: func(t testing.TB, s adaptertest.Service) adaptertest.Call {
					return conductCall(start(t, serviceOf(s), recovering(),
						limitedClient(chosen(s), conductOptions(s)...)...), desc)
				},
			})
		})
	}
}

const wordKey = "word"

// chosen returns the Choose of s. The word is in the metadata.
func chosen(s adaptertest.Service) grpclimit.Choose {
	return func(ctx context.Context, _ string, _ any) ([]ratelimit.Claim, error) {
		md, ok := metadata.FromIncomingContext(ctx)
		if !ok {
			md, _ = metadata.FromOutgoingContext(ctx)
		}
		return s.Choose(strings.Join(md.Get(wordKey), ","))
	}
}

func conductOptions(s adaptertest.Service) (opts []grpclimit.Option) {
	if s.Counting {
		succeeded := func(c codes.Code) bool { return c == codes.OK }
		opts = append(opts, grpclimit.WithCounting(succeeded))
	}
	if s.Wait {
		opts = append(opts, grpclimit.WithWait())
	}
	return opts
}

// serviceOf returns a service that works for each call when it has received what the client sends.
func serviceOf(s adaptertest.Service) *echo {
	work := func(ctx context.Context) error {
		if err := s.Work(ctx); err != nil {
			return status.Error(codes.Aborted, err.Error())
		}
		return nil
	}
	return &echo{
		unary: func(
			ctx context.Context, in *wrapperspb.StringValue,
		) (*wrapperspb.StringValue, error) {
			return in, work(ctx)
		},
		stream: func(stream grpc.ServerStream) error {
			m := new(wrapperspb.StringValue)
			for {
				if err := stream.RecvMsg(m); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					return err
				}
			}
			if err := work(stream.Context()); err != nil {
				return err
			}
			return stream.SendMsg(m)
		},
	}
}

// recovering returns the options of a server that goes on after a panic of a handler.
func recovering() []grpc.ServerOption {
	caught := func(err *error) {
		if p := recover(); p != nil {
			*err = status.Error(codes.Unknown, "panic")
		}
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(
			ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
		) (res any, err error) {
			defer caught(&err)
			return handler(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(
			srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler,
		) (err error) {
			defer caught(&err)
			return handler(srv, s)
		}),
	}
}

// conductCall returns a call of a method that streams as desc says, or not if it is nil.
func conductCall(cc *grpc.ClientConn, desc *grpc.StreamDesc) adaptertest.Call {
	return func(ctx context.Context, word string) adaptertest.Answer {
		ctx = metadata.AppendToOutgoingContext(ctx, wordKey, word)
		if desc == nil {
			return answerOf(call(ctx, cc))
		}
		return answerOf(stream(ctx, cc, desc))
	}
}

func stream(ctx context.Context, cc *grpc.ClientConn, desc *grpc.StreamDesc) error {
	s, err := cc.NewStream(ctx, desc, talkMethod)
	if err != nil {
		return err
	}
	// An error io.EOF of SendMsg means that RecvMsg has the status.
	if err := s.SendMsg(wrapperspb.String("hello")); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	for {
		if err := s.RecvMsg(new(wrapperspb.StringValue)); err != nil || !desc.ServerStreams {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// answerOf reads a status of package grpclimit.
func answerOf(err error) (a adaptertest.Answer) {
	s := status.Convert(err)
	a.Text = s.Proto().String()
	var info *errdetails.ErrorInfo
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.QuotaFailure:
			for _, v := range d.GetViolations() {
				a.Limits = append(a.Limits, v.GetQuotaId())
			}
		case *errdetails.RetryInfo:
			a.RetryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	switch s.Code() {
	case codes.OK:
	case codes.ResourceExhausted, codes.Unavailable:
		a.Reason = map[string]edge.Reason{
			grpclimit.ReasonExceeded:  edge.Exceeded,
			grpclimit.ReasonBlocked:   edge.Blocked,
			grpclimit.ReasonReduced:   edge.Reduced,
			grpclimit.ReasonUndecided: edge.Undecided,
		}[info.GetReason()]
	case codes.InvalidArgument:
		a.Reason = edge.Unattributed
	case codes.Internal:
		a.Reason = edge.Misconfigured
	default:
		a.Failed = true
	}
	return a
}
