package connectlimit_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/connectlimit"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
)

// byLength is a Choose of a unit for each byte of a message, and of none without one.
func byLength(l *ratelimit.Limiter) connectlimit.Choose {
	return func(_ context.Context, _ string, message any) ([]ratelimit.Claim, error) {
		m, ok := message.(*wrapperspb.StringValue)
		if !ok {
			return nil, nil
		}
		n := int64(len(m.GetValue()))
		return []ratelimit.Claim{{Limiter: l, Key: "k", N: n}}, nil
	}
}

// left returns how many units of l are free.
func left(t *testing.T, l *ratelimit.Limiter) int64 {
	t.Helper()
	res, err := l.Peek(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}

// sides calls test with interceptors of a server and of a client.
func sides(
	t *testing.T, choose connectlimit.Choose, opts []connectlimit.Option,
	work func(context.Context) error, test func(t *testing.T, client *connect.Client),
) {
	t.Run("server", func(t *testing.T) {
		test(t, newClient(serve(t, newServer(work,
			connectlimit.ServerInterceptor(choose, opts...))), nil))
	})
	t.Run("client", func(t *testing.T) {
		test(t, newClient(serve(t, newServer(work)), nil,
			connectlimit.ClientInterceptor(choose, opts...)))
	})
}

// TestWithRequest: a call with one request costs what that says, and one that is refused does no
// work.
func TestWithRequest(t *testing.T) {
	for _, kind := range []connect.StreamType{connect.StreamTypeUnary, connect.StreamTypeServer} {
		t.Run(kind.String(), func(t *testing.T) {
			var l *ratelimit.Limiter
			worked := 0
			sides(t, func(
				ctx context.Context, procedure string, message any,
			) ([]ratelimit.Claim, error) {
				return byLength(l)(ctx, procedure, message)
			}, []connectlimit.Option{connectlimit.WithRequest()},
				func(context.Context) error { worked++; return nil },
				func(t *testing.T, client *connect.Client) {
					l = limittest.NewLimiter(t, limittest.NewStore(t, nil),
						ratelimit.PerHour("bytes", 9))
					worked = 0
					for range 3 { // each of five bytes
						err := call(t.Context(), client, kind)
						if got, want := connect.CodeOf(err) ==
							connect.CodeResourceExhausted, worked == 1 && err != nil; got != want {
							t.Errorf("got %v after %d calls", err, worked)
						}
					}
					if n := left(t, l); n != 4 || worked != 1 {
						t.Errorf("%d units are left and %d calls were passed on, want 4 and 1",
							n, worked)
					}
				})
		})
	}
}

// TestWithRequestInFlight: a call that its request decides is in flight until it ends.
func TestWithRequestInFlight(t *testing.T) {
	var l *ratelimit.Limiter
	sides(t, func(_ context.Context, _ string, message any) ([]ratelimit.Claim, error) {
		if message == nil {
			t.Error("got no message")
		}
		return []ratelimit.Claim{{Limiter: l, Key: "k", N: 1}}, nil
	}, []connectlimit.Option{connectlimit.WithRequest()},
		func(context.Context) error {
			if n := left(t, l); n != 0 {
				t.Errorf("%d units are free while a call works", n)
			}
			return nil
		},
		func(t *testing.T, client *connect.Client) {
			l = limittest.NewInFlight(t, limittest.NewStore(t, nil), 1)
			for range 3 {
				if err := call(t.Context(), client, connect.StreamTypeUnary); err != nil {
					t.Fatal(err)
				}
			}
		})
}

// TestWithMessages: each message of a stream is decided, and the first that is refused ends it.
func TestWithMessages(t *testing.T) {
	for _, kind := range []connect.StreamType{connect.StreamTypeClient, connect.StreamTypeBidi} {
		t.Run(kind.String(), func(t *testing.T) {
			var l *ratelimit.Limiter
			sides(t, fixed(), []connectlimit.Option{connectlimit.WithMessages(func(
				ctx context.Context, procedure string, message any,
			) ([]ratelimit.Claim, error) {
				return byLength(l)(ctx, procedure, message)
			})}, done, func(t *testing.T, client *connect.Client) {
				l = limittest.NewLimiter(t, limittest.NewStore(t, nil),
					ratelimit.PerHour("bytes", 9))
				stream, err := client.CallClientStream(t.Context(), specOf(kind))
				if err != nil {
					t.Fatal(err)
				}
				for i := 0; err == nil && i < 100; i++ {
					err = stream.Send(wrapperspb.String("four"))
				}
				if errors.Is(err, io.EOF) || err == nil {
					_ = stream.CloseSend()
					err = stream.Receive(new(wrapperspb.StringValue))
				}
				if connect.CodeOf(err) != connect.CodeResourceExhausted {
					t.Errorf("got %v", err)
				}
				if n := left(t, l); n != 1 {
					t.Errorf("%d units are left, want 1", n)
				}
			})
		})
	}
}

// TestInFlightMessage: a message cannot be in flight.
func TestInFlightMessage(t *testing.T) {
	l := limittest.NewInFlight(t, limittest.NewStore(t, nil), 1)
	sides(t, fixed(), []connectlimit.Option{connectlimit.WithMessages(fixed(claim(l)))}, done,
		func(t *testing.T, client *connect.Client) {
			err := call(t.Context(), client, connect.StreamTypeBidi)
			if connect.CodeOf(err) != connect.CodeInternal {
				t.Errorf("got %v", err)
			}
		})
}

// TestFromContext: a handler finds the decision, and none if the call was not limited.
func TestFromContext(t *testing.T) {
	l := limittest.NewLimiter(t, limittest.NewStore(t, nil), ratelimit.PerHour("hour", 9))
	for _, c := range []struct {
		choose connectlimit.Choose
		want   int64 // units left, or -1
	}{{fixed(claim(l)), 8}, {fixed(), -1}} {
		url := serve(t, newServer(func(ctx context.Context) error {
			got := int64(-1)
			if d, ok := connectlimit.FromContext(ctx); ok {
				got = d.Results[0].Remaining
			}
			if got != c.want {
				t.Errorf("got %d units left, want %d", got, c.want)
			}
			return nil
		}, connectlimit.ServerInterceptor(c.choose)))
		if err := call(t.Context(), newClient(url, nil), connect.StreamTypeUnary); err != nil {
			t.Error(err)
		}
	}
}

// TestExempt: health checks and reflection are not limited, unless the option says so.
func TestExempt(t *testing.T) {
	for _, c := range []struct {
		opts []connectlimit.Option
		want connect.Code
	}{
		{nil, 0},
		{[]connectlimit.Option{connectlimit.WithExempt()}, connect.CodeInvalidArgument},
	} {
		refusing := func(context.Context, string, any) ([]ratelimit.Claim, error) {
			return nil, errors.New("no key")
		}
		run := connectlimit.ServerInterceptor(refusing, c.opts...)(
			func(context.Context, connect.Spec, connect.ServerStream) error { return nil })
		err := run(t.Context(), connect.Spec{Procedure: "/grpc.health.v1.Health/Check"}, nil)
		if c.want == 0 && err != nil || c.want != 0 && connect.CodeOf(err) != c.want {
			t.Errorf("got %v, want code %v", err, c.want)
		}
		err = run(t.Context(), connect.Spec{Procedure: "/test.Echo/unary"}, nil)
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("got %v", err)
		}
	}
}

// TestInvalidOptions: mistakes in the code of a program show at its start.
func TestInvalidOptions(t *testing.T) {
	for what, make := range map[string]func(){
		"nil": func() { connectlimit.ServerInterceptor(nil) },
		"WithWait": func() {
			connectlimit.ServerInterceptor(fixed(), connectlimit.WithWait())
		},
		"WithRetryJitter": func() {
			connectlimit.ClientInterceptor(fixed(), connectlimit.WithRetryJitter(1.1))
		},
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "connectlimit: ") ||
					!strings.Contains(text, what) {
					t.Errorf("%s: panicked with %q", what, text)
				}
			}()
			make()
		}()
	}
}

// TestAbandoned: a stream whose context ends is not in flight any more, though nobody receives from
// it or closes it.
func TestAbandoned(t *testing.T) {
	l := limittest.NewInFlight(t, limittest.NewStore(t, nil), 1)
	choose := fixed(ratelimit.Claim{Limiter: l, Key: "k", N: 1})
	client := newClient(serve(t, newServer(done)), nil, connectlimit.ClientInterceptor(choose))
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.CallClientStream(ctx, specOf(connect.StreamTypeBidi))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close() })
	if n := left(t, l); n != 0 {
		t.Errorf("%d units are free beside an open stream", n)
	}
	cancel()
	for began := time.Now(); left(t, l) == 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("the unit is not released")
		}
	}
}
