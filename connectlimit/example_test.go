package connectlimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/connectlimit"
)

// A server with a limit for each address.
func Example() {
	store, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerHour("hour", 2)))
	if err != nil {
		log.Fatal(err)
	}

	server := connect.NewServer(
		connectlimit.ServerInterceptor(connectlimit.PerCall(limiter, connectlimit.PeerAddr)),
	)
	server.Register(connect.Method{Spec: helloSpec, Handler: hello}) // or as generated
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server)
	listening := httptest.NewServer(mux)
	defer listening.Close()

	client := connect.NewClient(
		connecthttp.NewTransport(http.DefaultClient, listening.URL))
	for range 3 {
		err := client.CallUnary(context.Background(), helloSpec, wrapperspb.String("Ann"),
			new(wrapperspb.StringValue))
		if refusal, ok := connectlimit.RefusalOf(err); ok {
			fmt.Println(connect.CodeOf(err), refusal.Reason, refusal.Limits[0].Name,
				refusal.RetryAfter.Round(time.Minute))
		} else {
			fmt.Println(err)
		}
	}
	// Output:
	// <nil>
	// <nil>
	// resource_exhausted exceeded hour 1h0m0s
}

var helloSpec = connect.Spec{Procedure: "/acme.v1.Greeter/Hello"}

func hello(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
	name := new(wrapperspb.StringValue)
	if err := stream.Receive(name); err != nil {
		return err
	}
	return stream.Send(wrapperspb.String("Hello, " + name.GetValue()))
}

// Costs by procedure, for the token of the caller, and a limit of streams.
func ExampleChoose() {
	var units, streams *ratelimit.Limiter // made once, on one store
	costs := map[string]int64{"/acme.v1.Reports/Export": 20}

	choose := func(
		ctx context.Context, procedure string, _ any,
	) ([]ratelimit.Claim, error) {
		user, ok := userOf(ctx)
		if !ok {
			return nil, errors.New("not behind the interceptor that authenticates")
		}
		claims := []ratelimit.Claim{{Limiter: units, Key: user, N: max(1, costs[procedure])}}
		info, ok := connect.CallInfoForServerContext(ctx)
		if ok && info.Spec.StreamType != connect.StreamTypeUnary {
			claims = append(claims, ratelimit.Claim{Limiter: streams, Key: user, N: 1})
		}
		return claims, nil
	}
	_ = connect.NewServer(authenticate, connectlimit.ServerInterceptor(choose))
}

type userKey struct{}

func userOf(ctx context.Context) (user string, ok bool) {
	user, ok = ctx.Value(userKey{}).(string)
	return user, ok
}

// authenticate refuses calls without a token, and puts the user of it into the context.
func authenticate(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		info, _ := connect.CallInfoForServerContext(ctx)
		if info.RequestHeader().Get("Authorization") != "Bearer ann" {
			return connect.NewError(connect.CodeUnauthenticated, "no valid token")
		}
		return next(context.WithValue(ctx, userKey{}, "ann"), spec, stream)
	}
}

// A client that stays within somebody else's limit of 100 calls a minute.
func ExampleClientInterceptor() {
	var limiter *ratelimit.Limiter // made once
	choose := func(context.Context, string, any) ([]ratelimit.Claim, error) {
		return []ratelimit.Claim{{Limiter: limiter, Key: "reports", N: 1}}, nil
	}
	transport := connecthttp.NewTransport(http.DefaultClient, "https://reports.internal")
	_ = connect.NewClient(transport,
		connectlimit.ClientInterceptor(choose, connectlimit.WithWait()))
}

// A call costs as much as its request says.
func ExampleWithRequest() {
	var tokens *ratelimit.Limiter // made once
	choose := func(
		ctx context.Context, _ string, message any,
	) ([]ratelimit.Claim, error) {
		prompt, ok := message.(*wrapperspb.StringValue)
		if !ok {
			return nil, errors.New("another request")
		}
		user, _ := userOf(ctx)
		n := int64(len(prompt.GetValue()))
		return []ratelimit.Claim{{Limiter: tokens, Key: user, N: n}}, nil
	}
	_ = connect.NewServer(authenticate,
		connectlimit.ServerInterceptor(choose, connectlimit.WithRequest()))
}
