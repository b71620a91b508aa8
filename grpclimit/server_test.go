package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/grpclimit"
)

func TestServerStatus(t *testing.T) {
	c := newClock()
	limiter := newLimiter(t, newStore(t, c),
		ratelimit.PerSecond("burst", 2), ratelimit.PerMinute("steady", 2),
		ratelimit.PerDay("day", 1000))
	cc := start(t, &echo{}, limited(grpclimit.PerCall(limiter, secretKey)))
	for range 2 {
		if err := call(t.Context(), cc); err != nil {
			t.Fatal(err)
		}
	}

	for _, tt := range []struct {
		advance time.Duration
		limits  string
		retry   time.Duration
	}{
		{500 * time.Millisecond, "burst,steady", 59500 * time.Millisecond},
		{time.Second, "steady", 58500 * time.Millisecond},
		{58500*time.Millisecond - time.Microsecond, "steady", time.Microsecond},
	} {
		c.Advance(tt.advance)
		err := call(t.Context(), cc)
		d := checkStatus(t, err, codes.ResourceExhausted)
		if grpclimit.IsLocal(err) {
			t.Error("the refusal of a server is local")
		}
		if d.info.GetReason() != grpclimit.ReasonExceeded ||
			d.info.GetDomain() != grpclimit.DefaultDomain ||
			d.info.GetMetadata()["limits"] != tt.limits || len(d.info.GetMetadata()) != 1 {
			t.Errorf("ErrorInfo %v, want limits %s", d.info, tt.limits)
		}
		if got := d.retry.GetRetryDelay().AsDuration(); got != tt.retry {
			t.Errorf("RetryInfo %v, want %v", got, tt.retry)
		}
		var names []string
		for _, v := range d.quota.GetViolations() {
			names = append(names, v.GetQuotaId())
			if v.GetQuotaValue() != 2 || v.GetSubject() != "" || v.GetDescription() == "" {
				t.Errorf("violation %v", v)
			}
		}
		if got := fmt.Sprint(names); got != "["+replaceComma(tt.limits)+"]" {
			t.Errorf("violations of %v, want %s", names, tt.limits)
		}
	}
	c.Advance(time.Microsecond)
	if err := call(t.Context(), cc); err != nil {
		t.Errorf("after RetryInfo: %v", err)
	}
}

func replaceComma(s string) string {
	b := []byte(s)
	for i := range b {
		if b[i] == ',' {
			b[i] = ' '
		}
	}
	return string(b)
}

func TestServerSeveralClaims(t *testing.T) {
	store := newStore(t, newClock())
	requests := newLimiter(t, store, ratelimit.PerMinute("requests", 10))
	units := newLimiter(t, store, ratelimit.PerMinute("burst", 5), ratelimit.PerHour("units", 5))
	choose := fixed(ratelimit.Claim{Limiter: requests, Key: secret, N: 1},
		ratelimit.Claim{Limiter: units, Key: secret, N: 4})
	cc := start(t, &echo{}, limited(choose, grpclimit.WithDomain("echo.test")))
	if err := call(t.Context(), cc); err != nil {
		t.Fatal(err)
	}
	d := checkStatus(t, call(t.Context(), cc), codes.ResourceExhausted)
	if got := d.info.GetMetadata()["limits"]; got != "burst,units" ||
		d.info.GetDomain() != "echo.test" {
		t.Errorf("ErrorInfo %v, want limits burst,units", d.info)
	}
	if got := d.retry.GetRetryDelay().AsDuration(); got != time.Hour {
		t.Errorf("RetryInfo %v, want an hour", got)
	}
	if got := free(t, requests); got != 9 {
		t.Errorf("%d requests are free, want 9: a refused call is charged", got)
	}
}

func TestServerExceedsLimit(t *testing.T) {
	limiter := newLimiter(t, newStore(t, newClock()),
		ratelimit.PerSecond("burst", 5), ratelimit.PerDay("day", 100))
	for _, n := range []int64{6, driver.MaxUnits + 1} {
		cc := start(t, &echo{}, limited(fixed(ratelimit.Claim{Limiter: limiter, Key: secret, N: n}),
			grpclimit.WithPushback()))
		var trailer metadata.MD
		err := call(t.Context(), cc, grpc.Trailer(&trailer))
		d := checkStatus(t, err, codes.ResourceExhausted)
		if d.retry != nil {
			t.Errorf("%d units: RetryInfo %v, but waiting does not help", n, d.retry)
		}
		if v := d.quota.GetViolations(); v[0].GetQuotaId() != "burst" || v[0].GetQuotaValue() != 5 {
			t.Errorf("%d units: violations %v", n, v)
		}
		if got := trailer.Get("grpc-retry-pushback-ms"); !slices.Equal(got, []string{"-1"}) {
			t.Errorf("%d units: push-back %q, want -1", n, got)
		}
	}
}

// TestServerExceedsLeast: a limit is violated if it never admits the least part of a claim. Claims
// that do not fit each other are a mistake of the server.
func TestServerExceedsLeast(t *testing.T) {
	limiter := newLimiter(t, newStore(t, newClock()),
		ratelimit.PerSecond("burst", 5), ratelimit.PerDay("day", 100))
	claim := ratelimit.Claim{Limiter: limiter, Key: secret, N: 200, Least: 6}
	cc := start(t, &echo{}, limited(fixed(claim)))
	d := checkStatus(t, call(t.Context(), cc), codes.ResourceExhausted)
	if v := d.quota.GetViolations(); len(v) != 1 || v[0].GetQuotaId() != "burst" {
		t.Errorf("violations %v, want burst alone", v)
	}
	claim.Least = 5
	other := ratelimit.Claim{Limiter: limiter, Key: "other", N: 199, Least: 5}
	cc = start(t, &echo{}, limited(fixed(claim, other)))
	checkStatus(t, call(t.Context(), cc), codes.Internal)
	claim.N = driver.MaxUnits + 1
	cc = start(t, &echo{}, limited(fixed(claim)))
	checkStatus(t, call(t.Context(), cc), codes.ResourceExhausted)
}

func TestServerUndecided(t *testing.T) {
	for _, tt := range []struct {
		err    error
		policy ratelimit.Policy
		code   codes.Code
	}{
		{ratelimit.ErrUnavailable, ratelimit.FailClosed, codes.Unavailable},
		{ratelimit.ErrUnavailable, ratelimit.FailOpen, codes.OK},
		{fmt.Errorf("%w: "+secret, ratelimit.ErrOutcomeUnknown), ratelimit.FailClosed,
			codes.Unavailable},
		{ratelimit.ErrOutcomeUnknown, ratelimit.FailOpen, codes.OK},
		{fmt.Errorf("%w: %w", ratelimit.ErrUnavailable, context.DeadlineExceeded),
			ratelimit.FailClosed, codes.Unavailable},
		{driver.ErrCapacity, ratelimit.FailClosed, codes.Unavailable},
		{driver.ErrCapacity, ratelimit.FailOpen, codes.Unavailable},
		{driver.ErrContended, ratelimit.FailOpen, codes.Unavailable},
		{driver.ErrCorruptState, ratelimit.FailOpen, codes.Unavailable},
		{driver.ErrNoScript, ratelimit.FailClosed, codes.Internal},
		{driver.ErrNoScript, ratelimit.FailOpen, codes.Internal},
		{errors.New(secret), ratelimit.FailOpen, codes.Internal},
	} {
		t.Run(fmt.Sprint(tt.err, tt.policy), func(t *testing.T) {
			store := broken{tt.err}
			one := newLimiter(t, store, ratelimit.PerSecond("second", 1)).WithPolicy(tt.policy)
			other := newLimiter(t, store, ratelimit.PerDay("day", 1)).WithPolicy(tt.policy)
			for _, choose := range []grpclimit.Choose{
				grpclimit.PerCall(one, secretKey),
				grpclimit.PerCall(newInFlight(t, store, 1).WithPolicy(tt.policy), secretKey),
				fixed(ratelimit.Claim{Limiter: one, Key: secret, N: 1},
					ratelimit.Claim{Limiter: other, Key: secret, N: 1}),
			} {
				cc := start(t, &echo{}, limited(choose))
				d := checkStatus(t, call(t.Context(), cc), tt.code)
				if tt.code == codes.Unavailable &&
					d.info.GetReason() != grpclimit.ReasonUndecided {
					t.Errorf("ErrorInfo %v", d.info)
				}
				if d.retry != nil || d.quota != nil {
					t.Errorf("details %v of an undecided call", d)
				}
			}
		})
	}
}

func TestServerUnattributed(t *testing.T) {
	limiter := newLimiter(t, newStore(t, nil), ratelimit.PerSecond("second", 10))
	for name, tt := range map[string]struct {
		choose grpclimit.Choose
		code   codes.Code
	}{
		"error": {func(context.Context, string, any) ([]ratelimit.Claim, error) {
			return nil, errors.New(secret)
		}, codes.InvalidArgument},
		"status": {func(context.Context, string, any) ([]ratelimit.Claim, error) {
			return nil, status.Error(codes.Unauthenticated, secret)
		}, codes.Unauthenticated},
		"status OK": {func(context.Context, string, any) ([]ratelimit.Claim, error) {
			return nil, fmt.Errorf("no user: %w", okError{})
		}, codes.InvalidArgument},
		"error of a key": {grpclimit.PerCall(limiter,
			func(context.Context, string) (string, error) { return secret, errors.New(secret) }),
			codes.InvalidArgument},
		"empty key":  {fixed(ratelimit.Claim{Limiter: limiter, N: 1}), codes.InvalidArgument},
		"no limiter": {fixed(ratelimit.Claim{Key: secret, N: 1}), codes.Internal},
		"negative": {fixed(ratelimit.Claim{Limiter: limiter, Key: secret, N: -1}),
			codes.Internal},
		"twice": {fixed(ratelimit.Claim{Limiter: limiter, Key: secret, N: 1},
			ratelimit.Claim{Limiter: limiter, Key: secret, N: 1}), codes.Internal},
		"no claims": {fixed(), codes.OK},
		"no units":  {fixed(ratelimit.Claim{Limiter: limiter, Key: secret}), codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			cc := start(t, &echo{}, limited(tt.choose))
			checkStatus(t, call(t.Context(), cc), tt.code)
			stream, err := cc.NewStream(t.Context(), talkDesc, talkMethod)
			if err == nil {
				_ = stream.CloseSend()
				err = endOf(stream.RecvMsg(new(wrapperspb.StringValue)))
			}
			checkStatus(t, err, tt.code)
		})
	}
}

// okError is an error with the status OK.
type okError struct{}

func (okError) Error() string              { return secret }
func (okError) GRPCStatus() *status.Status { return status.New(codes.OK, secret) }

func TestServerContextEnded(t *testing.T) {
	limiter := newLimiter(t, newStore(t, nil), ratelimit.PerSecond("second", 1))
	interceptor := grpclimit.UnaryServerInterceptor(grpclimit.PerCall(limiter, secretKey))
	failing := grpclimit.UnaryServerInterceptor(grpclimit.PerCall(limiter,
		func(ctx context.Context, _ string) (string, error) { return "", ctx.Err() }))
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for ctx, code := range map[context.Context]codes.Code{
		canceled: codes.Canceled, expired: codes.DeadlineExceeded,
	} {
		for _, i := range []grpc.UnaryServerInterceptor{interceptor, failing} {
			_, err := i(ctx, nil, &grpc.UnaryServerInfo{FullMethod: echoMethod},
				func(context.Context, any) (any, error) {
					t.Error("the call was passed on")
					return nil, nil
				})
			checkStatus(t, err, code)
		}
	}
}

func TestServerExempt(t *testing.T) {
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerDay("day", 1))
	choose := grpclimit.PerCall(limiter, secretKey)
	check := func(cc *grpc.ClientConn) error {
		_, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{})
		return err
	}
	reflect := func(cc *grpc.ClientConn, method string) error {
		stream, err := cc.NewStream(t.Context(), talkDesc, method)
		if err != nil {
			return err
		}
		list := &reflectionpb.ServerReflectionRequest_ListServices{}
		err = stream.SendMsg(&reflectionpb.ServerReflectionRequest{MessageRequest: list})
		if err != nil && !errors.Is(err, io.EOF) { // RecvMsg has the status of a refusal
			return err
		}
		defer func() { _ = stream.CloseSend() }()
		return stream.RecvMsg(new(reflectionpb.ServerReflectionResponse))
	}
	calls := map[string]func(*grpc.ClientConn) error{
		"health": check,
		"reflection": func(cc *grpc.ClientConn) error {
			return reflect(cc, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
		},
		"reflection alpha": func(cc *grpc.ClientConn) error {
			return reflect(cc, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
		},
	}
	byDefault := start(t, &echo{}, limited(choose), limitedClient(choose)...)
	for name, call := range calls {
		for range 3 {
			if err := call(byDefault); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if got := free(t, limiter); got != 1 {
		t.Errorf("%d units are free, want 1", got)
	}
	_ = call(t.Context(), byDefault)

	none := start(t, &echo{}, limited(choose, grpclimit.WithExempt()))
	for name, call := range calls {
		if got := status.Code(call(none)); got != codes.ResourceExhausted {
			t.Errorf("%s, which is not exempt: %v", name, got)
		}
	}
	own := start(t, &echo{}, limited(choose, grpclimit.WithExempt("test.Echo")))
	if err := call(t.Context(), own); err != nil {
		t.Errorf("an exempt service: %v", err)
	}
	checkStatus(t, check(own), codes.ResourceExhausted)
}

func TestServerConcurrent(t *testing.T) {
	const limit, calls = 30, 200
	var passed atomic.Int64
	e := &echo{unary: func(
		_ context.Context, in *wrapperspb.StringValue,
	) (*wrapperspb.StringValue, error) {
		passed.Add(1)
		return in, nil
	}}
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerHour("hour", limit),
		ratelimit.PerDay("day", limit))
	cc := start(t, e, limited(grpclimit.PerCall(limiter, secretKey)))
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() { _ = call(t.Context(), cc) })
	}
	wg.Wait()
	if got := passed.Load(); got != limit {
		t.Errorf("%d calls of %d were passed on, want %d", got, calls, limit)
	}
}

func TestServerDecisionInContext(t *testing.T) {
	store := newStore(t, newClock())
	limiter := newLimiter(t, store, ratelimit.PerHour("hour", 10), ratelimit.PerDay("day", 20))
	calls := newInFlight(t, store, 5)
	type value struct{}
	for _, tt := range []struct {
		claims  []ratelimit.Claim
		results int
	}{
		{nil, 0},
		{[]ratelimit.Claim{{Limiter: limiter, Key: "a", N: 1}}, 2},
		{[]ratelimit.Claim{
			{Limiter: limiter, Key: "b", N: 1}, {Limiter: calls, Key: "b", N: 1},
		}, 3},
		{[]ratelimit.Claim{{Limiter: calls, Key: "c", N: 1}}, 1},
	} {
		look := func(ctx context.Context) {
			d, ok := grpclimit.FromContext(ctx)
			if ok != (tt.claims != nil) || len(d.Results) != tt.results ||
				len(d.Claims) != len(tt.claims) {
				t.Errorf("decision %v %v, want %d results", d, ok, tt.results)
			}
			for _, res := range d.Results {
				if !res.Allowed || res.Limit.Max == 0 {
					t.Errorf("result %v", res)
				}
			}
			if _, ok := ctx.Deadline(); !ok || ctx.Value(value{}) != "value" {
				t.Error("the context has lost the deadline or the values of the call")
			}
		}
		e := &echo{
			unary: func(
				ctx context.Context, in *wrapperspb.StringValue,
			) (*wrapperspb.StringValue, error) {
				look(ctx)
				return in, nil
			},
			stream: func(s grpc.ServerStream) error {
				look(s.Context())
				return nil
			},
		}
		before := grpc.ChainUnaryInterceptor(func(
			ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
		) (any, error) {
			return handler(context.WithValue(ctx, value{}, "value"), req)
		})
		beforeStream := grpc.ChainStreamInterceptor(func(
			srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler,
		) error {
			return handler(srv, withContext{s, context.WithValue(s.Context(), value{}, "value")})
		})
		cc := start(t, e, append([]grpc.ServerOption{before, beforeStream},
			limited(fixed(tt.claims...))...))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := call(ctx, cc); err != nil {
			t.Error(err)
		}
		stream, err := cc.NewStream(ctx, talkDesc, talkMethod)
		if err != nil {
			t.Fatal(err)
		}
		if err := endOf(stream.RecvMsg(new(wrapperspb.StringValue))); err != nil {
			t.Error(err)
		}
		cancel()
	}
}

// withContext is a stream with another context.
type withContext struct {
	grpc.ServerStream
	ctx context.Context
}

func (s withContext) Context() context.Context { return s.ctx }

func TestServerCounted(t *testing.T) {
	limiter := newBudget(t, newStore(t, newClock()), ratelimit.PerHour("failures", 2))
	result := codes.OK
	e := &echo{
		unary: func(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
			switch result {
			case codes.DeadlineExceeded:
				return nil, context.DeadlineExceeded // not a status
			case codes.Unknown:
				return nil, errors.New("no status")
			}
			return new(wrapperspb.StringValue), status.Error(result, "")
		},
		stream: func(grpc.ServerStream) error { return status.Error(result, "") },
	}
	failures := func(code codes.Code) bool { return code == codes.Unauthenticated }
	cc := start(t, e, limited(grpclimit.PerCall(limiter, secretKey),
		grpclimit.WithCounting(failures)))
	for i, tt := range []struct {
		result, want codes.Code
		free         int64
	}{
		{codes.OK, codes.OK, 2},
		{codes.DeadlineExceeded, codes.DeadlineExceeded, 2},
		{codes.Unknown, codes.Unknown, 2},
		{codes.Unauthenticated, codes.Unauthenticated, 1},
		{codes.OK, codes.OK, 1},
		{codes.Unauthenticated, codes.Unauthenticated, 0},
		{codes.OK, codes.ResourceExhausted, 0},
	} {
		result = tt.result
		checkStatus(t, call(t.Context(), cc), tt.want)
		if got := free(t, limiter); got != tt.free {
			t.Errorf("call %d: %d units are free, want %d", i, got, tt.free)
		}
	}
}

func TestPanicsOfConstructors(t *testing.T) {
	limiter := newLimiter(t, broken{}, ratelimit.PerSecond("second", 1))
	choose := grpclimit.PerCall(limiter, secretKey)
	for name, f := range map[string]func(){
		"no limiter":         func() { grpclimit.PerCall(nil, secretKey) },
		"no key":             func() { grpclimit.PerCall(limiter, nil) },
		"no choose":          func() { grpclimit.UnaryServerInterceptor(nil) },
		"no choose, stream":  func() { grpclimit.StreamClientInterceptor(nil) },
		"no choose, adapter": func() { grpclimit.NewAdapter(nil) },
		"waiting server": func() {
			grpclimit.StreamServerInterceptor(choose, grpclimit.WithWait())
		},
		"push-back of client": func() {
			grpclimit.UnaryClientInterceptor(choose, grpclimit.WithPushback())
		},
		"jitter": func() {
			grpclimit.UnaryServerInterceptor(choose, grpclimit.WithRetryJitter(-1))
		},
		"adapter": func() { grpclimit.NewAdapter(choose, grpclimit.WithPushback()) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}
