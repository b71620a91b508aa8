package grpclimit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/grpclimit"
)

func TestClientRefusalIsLocal(t *testing.T) {
	var served atomic.Int64
	e := &echo{unary: func(
		_ context.Context, in *wrapperspb.StringValue,
	) (*wrapperspb.StringValue, error) {
		served.Add(1)
		return in, nil
	}}
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerHour("hour", 1))
	cc := start(t, e, nil, limitedClient(grpclimit.PerCall(limiter, secretKey))...)
	if err := call(t.Context(), cc); err != nil {
		t.Fatal(err)
	}
	err := call(t.Context(), cc)
	d := checkStatus(t, err, codes.ResourceExhausted)
	if !grpclimit.IsLocal(err) || d.info.GetMetadata()[grpclimit.MetadataOrigin] != "client" {
		t.Errorf("%v is not local: %v", err, d.info)
	}
	if !errors.Is(err, status.FromProto(status.Convert(err).Proto()).Err()) {
		t.Error("the error is not its status")
	}
	if d.retry.GetRetryDelay().AsDuration() != time.Hour || served.Load() != 1 {
		t.Errorf("RetryInfo %v, %d calls served", d.retry, served.Load())
	}
	_, err = cc.NewStream(t.Context(), talkDesc, talkMethod)
	checkStatus(t, err, codes.ResourceExhausted)

	// If a server returns the error of its own client, it is not local for the caller.
	front := start(t, &echo{unary: func(
		ctx context.Context, in *wrapperspb.StringValue,
	) (*wrapperspb.StringValue, error) {
		return in, call(ctx, cc)
	}}, nil)
	err = call(t.Context(), front)
	checkStatus(t, err, codes.ResourceExhausted)
	if grpclimit.IsLocal(err) {
		t.Error("the refusal of another process is local")
	}
}

// invoke calls an interceptor of a client, and returns how long it took.
func invoke(
	ctx context.Context, i grpc.UnaryClientInterceptor, f func() error,
) (time.Duration, error) {
	began := time.Now()
	err := i(ctx, echoMethod, nil, nil, nil, func(
		context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption,
	) error {
		return f()
	})
	return time.Since(began), err
}

func TestClientWait(t *testing.T) {
	ok := func() error { return nil }
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t, nil)
		second := newLimiter(t, store, ratelimit.PerSecond("second", 1))
		minute := newLimiter(t, store, ratelimit.PerMinute("minute", 3))
		for name, i := range map[string]grpc.UnaryClientInterceptor{
			"one": grpclimit.UnaryClientInterceptor(
				grpclimit.PerCall(second, secretKey), grpclimit.WithWait()),
			"several": grpclimit.UnaryClientInterceptor(
				fixed(ratelimit.Claim{Limiter: second, Key: secret, N: 1},
					ratelimit.Claim{Limiter: minute, Key: secret, N: 1}), grpclimit.WithWait()),
		} {
			time.Sleep(time.Hour)
			for n, want := range []time.Duration{0, time.Second, time.Second} {
				if took, err := invoke(t.Context(), i, ok); err != nil || took != want {
					t.Errorf("%s: call %d took %v (%v), want %v", name, n, took, err, want)
				}
			}
			// A call that cannot be admitted in time is refused at once, with details.
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			took, err := invoke(ctx, i, ok)
			d := checkStatus(t, err, codes.ResourceExhausted)
			if took != 0 || !grpclimit.IsLocal(err) || d.retry == nil {
				t.Errorf("%s: took %v, details %v", name, took, d)
			}
			cancel()
			// A call is canceled while it waits.
			ctx, cancel = context.WithCancel(t.Context())
			stop := time.AfterFunc(100*time.Millisecond, cancel)
			took, err = invoke(ctx, i, ok)
			checkStatus(t, err, codes.Canceled)
			if took != 100*time.Millisecond {
				t.Errorf("%s: canceled after %v", name, took)
			}
			stop.Stop()
			cancel()
		}
	})
}

// TestClientWaitOrder: calls with the same first claim are admitted in the order in which they
// began, whatever their others. Those behind the first wait, also if they cannot be admitted before
// their deadlines.
func TestClientWaitOrder(t *testing.T) {
	ok := func() error { return nil }
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t, nil)
		minute := newLimiter(t, store, ratelimit.PerMinute("minute", 1))
		other := newLimiter(t, store, ratelimit.PerMinute("other", 1000))
		budget := newBudget(t, store, ratelimit.PerMinute("budget", 1000))
		one := []ratelimit.Claim{{Limiter: minute, Key: secret, N: 1}}
		several := append(slices.Clone(one), ratelimit.Claim{Limiter: other, Key: secret, N: 1})
		held := append(slices.Clone(one), ratelimit.Claim{Limiter: budget, Key: secret, N: 1})
		counted := grpclimit.WithCounting(func(codes.Code) bool { return true })
		first := grpclimit.UnaryClientInterceptor(fixed(one...), grpclimit.WithWait())
		if took, err := invoke(t.Context(), first, ok); took != 0 || err != nil {
			t.Fatalf("%v, %v", took, err)
		}
		var mu sync.Mutex
		var admitted []string
		for name, i := range map[string]grpc.UnaryClientInterceptor{
			"1": first,
			"2": grpclimit.UnaryClientInterceptor(fixed(several...), grpclimit.WithWait()),
			"3": grpclimit.UnaryClientInterceptor(fixed(held...), grpclimit.WithWait(), counted),
			"4": first,
		} {
			go func() {
				time.Sleep(time.Duration(name[0]) * time.Millisecond)
				_, err := invoke(t.Context(), i, func() error {
					mu.Lock()
					defer mu.Unlock()
					admitted = append(admitted, name)
					return nil
				})
				if err != nil {
					t.Errorf("call %s: %v", name, err)
				}
			}()
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		took, err := invoke(ctx, first, ok) // behind four, of which each waits for a minute
		checkStatus(t, err, codes.DeadlineExceeded)
		if took != 5*time.Second {
			t.Errorf("a call behind others took %v", took)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := strings.Join(admitted, ""); got != "1234" {
			t.Errorf("admitted in the order %s", got)
		}
	})
}

// TestClientWaitCounted: a call waits for a Budget until its units are free, or its deadline:
// others may end, and not count.
func TestClientWaitCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := newBudget(t, newStore(t, nil), ratelimit.PerMinute("minute", 1))
		counts := true
		i := grpclimit.UnaryClientInterceptor(
			grpclimit.PerCall(budget, secretKey), grpclimit.WithWait(),
			grpclimit.WithCounting(func(codes.Code) bool { return counts }))
		for n, want := range []time.Duration{0, time.Minute} {
			took, err := invoke(t.Context(), i, func() error { return nil })
			if err != nil || took < want || took > want+200*time.Millisecond {
				t.Errorf("call %d took %v (%v), want %v", n, took, err, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		took, err := invoke(ctx, i, func() error { return nil })
		checkStatus(t, err, codes.DeadlineExceeded)
		if took != time.Second {
			t.Errorf("gave up after %v", took)
		}
		time.Sleep(time.Hour)
		counts = false
		go func() {
			_, _ = invoke(t.Context(), i, func() error {
				time.Sleep(time.Second)
				return nil
			})
		}()
		synctest.Wait()
		took, err = invoke(t.Context(), i, func() error { return nil })
		if err != nil || took != time.Second {
			t.Errorf("took %v (%v), and the unit is free after a second", took, err)
		}
	})
}

func TestClientWaitInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t, nil)
		calls := newInFlight(t, store, 1)
		rate := newLimiter(t, store, ratelimit.PerHour("rate", 1000))
		for name, choose := range map[string]grpclimit.Choose{
			"one": grpclimit.PerCall(calls, secretKey),
			"several": fixed(ratelimit.Claim{Limiter: rate, Key: secret, N: 1},
				ratelimit.Claim{Limiter: calls, Key: secret, N: 1}),
		} {
			i := grpclimit.UnaryClientInterceptor(choose, grpclimit.WithWait())
			go func() {
				_, _ = invoke(t.Context(), i, func() error {
					time.Sleep(time.Minute)
					return nil
				})
			}()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			took, err := invoke(ctx, i, func() error { return nil })
			checkStatus(t, err, codes.DeadlineExceeded)
			if took != time.Second {
				t.Errorf("%s: gave up after %v", name, took)
			}
			cancel()
			took, err = invoke(t.Context(), i, func() error { return nil })
			if err != nil || took < 59*time.Second || took > 60*time.Second {
				t.Errorf("%s: took %v (%v), and the call in flight ends sooner", name, took, err)
			}
			if got := free(t, calls); got != 1 {
				t.Errorf("%s: the call stays in flight", name)
			}
		}
	})
}

// TestClientWaitInFlightAndRate: a call that waits for another to end is refused at once all the
// same if a rate cannot admit it before its deadline.
func TestClientWaitInFlightAndRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t, nil)
		calls := newInFlight(t, store, 1)
		rate := newLimiter(t, store, ratelimit.PerMinute("rate", 1))
		i := grpclimit.UnaryClientInterceptor(fixed(
			ratelimit.Claim{Limiter: calls, Key: secret, N: 1},
			ratelimit.Claim{Limiter: rate, Key: secret, N: 1}), grpclimit.WithWait())
		_, err := invoke(t.Context(), i, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			took, err := invoke(ctx, i, func() error { return nil })
			if d := checkStatus(t, err, codes.ResourceExhausted); took != 0 || d.retry == nil {
				t.Errorf("refused after %v, details %v", took, d)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

const retries = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3,
	"initialBackoff": "20s", "maxBackoff": "20s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`

// TestRetriesFollowPushback: without the trailer, grpc-go would wait for 16 s or longer.
func TestRetriesFollowPushback(t *testing.T) {
	limiter := newLimiter(t, newStore(t, nil),
		ratelimit.Limit{Name: "short", Max: 1, Window: 50 * time.Millisecond})
	var attempts atomic.Int64
	units := int64(1)
	choose := func(context.Context, string, any) ([]ratelimit.Claim, error) {
		attempts.Add(1)
		return []ratelimit.Claim{{Limiter: limiter, Key: secret, N: units}}, nil
	}
	cc := start(t, &echo{}, limited(choose, grpclimit.WithPushback()),
		grpc.WithDefaultServiceConfig(retries))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 4 {
		if err := call(ctx, cc); err != nil {
			t.Fatal(err)
		}
	}
	if got := attempts.Load(); got < 5 {
		t.Errorf("%d attempts of 4 calls: none was refused", got)
	}
	attempts.Store(0)
	units = 2
	checkStatus(t, call(ctx, cc), codes.ResourceExhausted)
	if got := attempts.Load(); got != 1 {
		t.Errorf("%d attempts of a call that is never admitted", got)
	}
}

func TestAdapter(t *testing.T) {
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerHour("hour", 1))
	var middleware interface {
		Limit(ctx context.Context) error
	} = grpclimit.NewAdapter(grpclimit.PerCall(limiter, grpclimit.Method))
	cc := start(t, &echo{}, []grpc.ServerOption{grpc.ChainUnaryInterceptor(func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (any, error) {
		if err := middleware.Limit(ctx); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	})})
	if err := call(t.Context(), cc); err != nil {
		t.Fatal(err)
	}
	checkStatus(t, call(t.Context(), cc), codes.ResourceExhausted)
	if res, err := limiter.Peek(t.Context(), echoMethod); err != nil || res.Allowed {
		t.Errorf("%v, %v: the key is not the method", res, err)
	}
}
