package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/grpclimit"
)

func open(
	t *testing.T, cc *grpc.ClientConn, desc *grpc.StreamDesc, method string,
) grpc.ClientStream {
	t.Helper()
	stream, err := cc.NewStream(t.Context(), desc, method)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// talk sends a message and receives the answer.
func talk(s grpc.ClientStream) error {
	if err := s.SendMsg(wrapperspb.String("hello")); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return s.RecvMsg(new(wrapperspb.StringValue))
}

func TestMessages(t *testing.T) {
	store := newStore(t, newClock())
	for _, side := range []string{"server", "client"} {
		limiter := newLimiter(t, store, ratelimit.PerHour("messages-"+side, 3))
		messages := grpclimit.WithMessages(func(
			_ context.Context, method string, m any,
		) ([]ratelimit.Claim, error) {
			if m.(*wrapperspb.StringValue).GetValue() != "hello" || method != talkMethod {
				t.Errorf("message %v of %s", m, method)
			}
			return []ratelimit.Claim{{Limiter: limiter, Key: secret, N: 1}}, nil
		})
		var cc *grpc.ClientConn
		if side == "server" {
			cc = start(t, &echo{}, limited(fixed(), messages))
		} else {
			cc = start(t, &echo{}, nil, limitedClient(fixed(), messages)...)
		}
		first, second := open(t, cc, talkDesc, talkMethod), open(t, cc, talkDesc, talkMethod)
		for _, s := range []grpc.ClientStream{first, second, first} {
			if err := talk(s); err != nil {
				t.Fatalf("%s: %v", side, err)
			}
		}
		for range 2 { // the stream stays ended
			err := talk(second)
			d := checkStatus(t, err, codes.ResourceExhausted)
			if d.retry.GetRetryDelay().AsDuration() != time.Hour {
				t.Errorf("%s: RetryInfo %v", side, d.retry)
			}
			if grpclimit.IsLocal(err) != (side == "client") {
				t.Errorf("%s: local %v", side, !grpclimit.IsLocal(err))
			}
		}
		err := second.RecvMsg(new(wrapperspb.StringValue))
		checkStatus(t, err, codes.ResourceExhausted)
		_ = first.CloseSend()
		if err := first.RecvMsg(new(wrapperspb.StringValue)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: a stream without refusal ends with %v", side, err)
		}
	}
}

// TestMessagesRefusedOnce: a handler that continues after a refusal receives no more messages.
func TestMessagesRefusedOnce(t *testing.T) {
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerHour("messages", 1))
	e := &echo{stream: func(s grpc.ServerStream) error {
		for range 3 {
			_ = s.RecvMsg(new(wrapperspb.StringValue))
		}
		res, err := limiter.Peek(s.Context(), secret)
		if err != nil || res.Remaining != 1 {
			t.Errorf("%v, %v: a message took a unit after the refusal", res, err)
		}
		return nil
	}}
	n := int64(2) // more than the limit ever admits
	cc := start(t, e, limited(fixed(), grpclimit.WithMessages(
		func(context.Context, string, any) ([]ratelimit.Claim, error) {
			n--
			return []ratelimit.Claim{{Limiter: limiter, Key: secret, N: n + 1}}, nil
		})))
	s := open(t, cc, talkDesc, talkMethod)
	for range 3 {
		_ = s.SendMsg(wrapperspb.String("hello"))
	}
	if err := s.RecvMsg(new(wrapperspb.StringValue)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestMessagesInFlightAreAMistake(t *testing.T) {
	calls := newInFlight(t, newStore(t, nil), 5)
	choose := grpclimit.PerCall(calls, secretKey)
	cc := start(t, &echo{}, limited(fixed(), grpclimit.WithMessages(choose)))
	checkStatus(t, talk(open(t, cc, talkDesc, talkMethod)), codes.Internal)
	checkStatus(t, grpclimit.NewAdapter(choose).Limit(t.Context()), codes.Internal)
	if got := free(t, calls); got != 5 {
		t.Errorf("%d calls are free, want 5", got)
	}
}

// eventually waits for something that another goroutine does, such as one of the server.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func TestInFlight(t *testing.T) {
	store := newStore(t, nil)
	rate := newLimiter(t, store, ratelimit.PerHour("rate", 1000))
	recovering := func(err *error) {
		if recover() != nil {
			*err = status.Error(codes.Internal, "panic")
		}
	}
	outer := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
			handler grpc.UnaryHandler) (_ any, err error) {
			defer recovering(&err)
			return handler(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo,
			handler grpc.StreamHandler) (err error) {
			defer recovering(&err)
			return handler(srv, s)
		}),
	}
	for _, side := range []string{"server", "client"} {
		calls := newInFlight(t, store, 2)
		choose := fixed(ratelimit.Claim{Limiter: rate, Key: secret, N: 1},
			ratelimit.Claim{Limiter: calls, Key: secret, N: 1})
		proceed, panics := make(chan struct{}), false
		e := &echo{unary: func(
			context.Context, *wrapperspb.StringValue,
		) (*wrapperspb.StringValue, error) {
			<-proceed
			if panics {
				panic("planned")
			}
			return nil, status.Error(codes.NotFound, "")
		}}
		var cc *grpc.ClientConn
		if side == "server" {
			cc = start(t, e, append(outer, limited(choose)...))
		} else {
			cc = start(t, e, outer, limitedClient(choose)...)
		}
		for _, panics = range []bool{false, true} {
			done := make(chan error)
			for range 2 {
				go func() { done <- call(t.Context(), cc) }()
			}
			eventually(t, side+": two calls do not begin",
				func() bool { return free(t, calls) == 0 })
			d := checkStatus(t, call(t.Context(), cc), codes.ResourceExhausted)
			if got := d.retry.GetRetryDelay().AsDuration(); got != time.Second {
				t.Errorf("%s: RetryInfo %v, want a second", side, got)
			}
			if v := d.quota.GetViolations(); len(v) != 1 || v[0].GetQuotaId() != "calls" ||
				v[0].GetDescription() != "at most 2 at once" {
				t.Errorf("%s: violations %v", side, v)
			}
			proceed <- struct{}{}
			proceed <- struct{}{}
			for range 2 {
				if err := <-done; status.Code(err) == codes.ResourceExhausted {
					t.Error(err)
				}
			}
			eventually(t, side+": calls stay in flight", func() bool { return free(t, calls) == 2 })
		}

		for name, end := range map[string]func(grpc.ClientStream, context.CancelFunc){
			"received to the end": func(s grpc.ClientStream, _ context.CancelFunc) {
				_ = s.CloseSend()
				for s.RecvMsg(new(wrapperspb.StringValue)) == nil {
				}
			},
			"canceled": func(_ grpc.ClientStream, cancel context.CancelFunc) { cancel() },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			s, err := cc.NewStream(ctx, talkDesc, talkMethod)
			if err != nil {
				t.Fatal(err)
			}
			if err := talk(s); err != nil {
				t.Fatal(err)
			}
			if got := free(t, calls); got != 1 {
				t.Errorf("%s, %s: %d calls are free, want 1", side, name, got)
			}
			end(s, cancel)
			eventually(t, side+", "+name+": the stream stays in flight",
				func() bool { return free(t, calls) == 2 })
			cancel()
		}
		upload := open(t, cc, uploadDesc, uploadMethod)
		_ = upload.SendMsg(wrapperspb.String("hello"))
		_ = upload.CloseSend()
		if err := upload.RecvMsg(new(wrapperspb.StringValue)); err != nil {
			t.Error(err)
		}
		eventually(t, side+": an upload stays in flight",
			func() bool { return free(t, calls) == 2 })
	}
}

// failing is a stream whose calls fail.
type failing struct {
	grpc.ClientStream
	err error
}

func (f failing) Header() (metadata.MD, error) { return nil, f.err }
func (f failing) SendMsg(any) error            { return f.err }

func TestClientStreamFails(t *testing.T) {
	calls := newInFlight(t, newStore(t, nil), 1)
	interceptor := grpclimit.StreamClientInterceptor(grpclimit.PerCall(calls, secretKey))
	open := func(err error) (grpc.ClientStream, error) {
		return interceptor(t.Context(), talkDesc, nil, talkMethod, func(context.Context,
			*grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			if err == nil {
				panic("planned")
			}
			if status.Code(err) == codes.NotFound {
				return nil, err
			}
			return failing{err: err}, nil
		})
	}
	for name, f := range map[string]func(){
		"open": func() { _, _ = open(status.Error(codes.NotFound, "")) },
		"panic": func() {
			defer func() { _ = recover() }()
			_, _ = open(nil)
		},
		"header": func() {
			s, _ := open(errors.New("header"))
			_, _ = s.Header()
		},
		"send": func() {
			s, _ := open(errors.New("send"))
			_ = s.SendMsg(nil)
		},
	} {
		f()
		if got := free(t, calls); got != 1 {
			t.Errorf("%s: the call stays in flight", name)
		}
	}
	s, _ := open(io.EOF)
	_ = s.SendMsg(nil)
	if got := free(t, calls); got != 0 {
		t.Error("a stream has ended before RecvMsg has its status")
	}
}
