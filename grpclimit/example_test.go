package grpclimit_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/grpclimit"
)

// A server with a limit for each address. The service here is that of health checks, which is
// exempt by default, so the example exempts none.
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

	choose := grpclimit.PerCall(limiter, grpclimit.PeerAddr)
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(
			grpclimit.UnaryServerInterceptor(choose, grpclimit.WithExempt()),
		),
		grpc.ChainStreamInterceptor(
			grpclimit.StreamServerInterceptor(choose, grpclimit.WithExempt()),
		),
	)
	healthpb.RegisterHealthServer(server, healthy{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(listener)
	defer server.Stop()

	cc, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer cc.Close()
	for range 3 {
		_, err := healthpb.NewHealthClient(cc).Check(context.Background(),
			&healthpb.HealthCheckRequest{})
		fmt.Println(status.Code(err))
		for _, detail := range status.Convert(err).Details() {
			switch detail := detail.(type) {
			case *errdetails.ErrorInfo:
				fmt.Println(detail.GetReason(), detail.GetMetadata()["limits"])
			case *errdetails.RetryInfo:
				fmt.Println(detail.GetRetryDelay().AsDuration().Round(time.Minute))
			}
		}
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
	// RATE_LIMIT_EXCEEDED hour
	// 1h0m0s
}

type healthy struct {
	healthpb.UnimplementedHealthServer
}

func (healthy) Check(
	context.Context, *healthpb.HealthCheckRequest,
) (*healthpb.HealthCheckResponse, error) {
	return new(healthpb.HealthCheckResponse), nil
}

// What a call costs may depend on its user, its method and its request.
func ExampleChoose() {
	store, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	requests, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("requests", 60)))
	if err != nil {
		log.Fatal(err)
	}
	calls, err := ratelimit.New(store, algorithm.InFlight("calls", 5))
	if err != nil {
		log.Fatal(err)
	}

	user := grpclimit.Metadata("x-user") // verified by a proxy in front of the server
	choose := func(ctx context.Context, method string, _ any) ([]ratelimit.Claim, error) {
		key, err := user(ctx, method)
		if err != nil {
			return nil, err
		}
		units := int64(1)
		if method == "/reports.Reports/Export" {
			units = 20
		}
		return []ratelimit.Claim{
			{Limiter: requests, Key: key, N: units},
			{Limiter: calls, Key: key, N: 1}, // until the call has ended
		}, nil
	}

	_, err = choose(context.Background(), "/reports.Reports/Export", nil)
	fmt.Println(err)
	// Output: grpclimit: the metadata value is missing or repeated
}

// A client that stays within the quota of a service: calls wait for their turn, up to the deadline
// of their context.
func ExampleUnaryClientInterceptor() {
	store, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("quota", 1)))
	if err != nil {
		log.Fatal(err)
	}
	// The quota is used up already.
	if _, err := limiter.Allow(context.Background(), "reports"); err != nil {
		log.Fatal(err)
	}

	choose := func(context.Context, string, any) ([]ratelimit.Claim, error) {
		return []ratelimit.Claim{{Limiter: limiter, Key: "reports", N: 1}}, nil
	}
	cc, err := grpc.NewClient("passthrough:///reports.internal:443",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(
			grpclimit.UnaryClientInterceptor(choose, grpclimit.WithWait()),
		),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer cc.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err = cc.Invoke(ctx, "/reports.Reports/Export", new(emptypb.Empty), new(emptypb.Empty))
	if grpclimit.IsLocal(err) {
		fmt.Println("not sent:", status.Code(err))
	}
	// Output: not sent: ResourceExhausted
}
