// Package connect tests that clients of grpc-go understand servers of connect-go.
package connect

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/connectlimit"
)

const procedure = "/test.Echo/Echo"

// TestDetails: a client of grpc-go reads the code and the details of a refusal.
func TestDetails(t *testing.T) {
	store, err := memorystore.New(&memorystore.Options{Now: func() int64 { return 1e15 }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerHour("hour", 1)))
	if err != nil {
		t.Fatal(err)
	}
	server := connect.NewServer(connectlimit.ServerInterceptor(
		connectlimit.PerCall(limiter, connectlimit.PeerAddr),
		connectlimit.WithDomain("example.com")))
	server.Register(connect.Method{
		Spec: connect.Spec{Procedure: procedure},
		Handler: func(_ context.Context, _ connect.Spec, s connect.ServerStream) error {
			m := new(wrapperspb.StringValue)
			if err := s.Receive(m); err != nil {
				return err
			}
			return s.Send(m)
		},
	})
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server)
	listening := httptest.NewUnstartedServer(mux)
	listening.Config.Protocols = new(http.Protocols)
	listening.Config.Protocols.SetUnencryptedHTTP2(true)
	listening.Start()
	t.Cleanup(listening.Close)

	cc, err := grpc.NewClient(strings.TrimPrefix(listening.URL, "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	call := func() *status.Status {
		return status.Convert(cc.Invoke(t.Context(), procedure, wrapperspb.String("hello"),
			new(wrapperspb.StringValue)))
	}
	if s := call(); s.Code() != codes.OK {
		t.Fatal(s)
	}
	s := call()
	if s.Code() != codes.ResourceExhausted || s.Message() != "rate limit exceeded: hour" {
		t.Errorf("got %v", s)
	}
	details := s.Details()
	if len(details) != 3 {
		t.Fatalf("got details %v", details)
	}
	info, _ := details[0].(*errdetails.ErrorInfo)
	quota, _ := details[1].(*errdetails.QuotaFailure)
	retry, _ := details[2].(*errdetails.RetryInfo)
	if info.GetReason() != "RATE_LIMIT_EXCEEDED" || info.GetDomain() != "example.com" ||
		info.GetMetadata()["limits"] != "hour" {
		t.Errorf("got %v", info)
	}
	if v := quota.GetViolations(); len(v) != 1 || v[0].GetQuotaId() != "hour" ||
		v[0].GetQuotaValue() != 1 {
		t.Errorf("got %v", quota)
	}
	if d := retry.GetRetryDelay().AsDuration(); d != time.Hour {
		t.Errorf("got a delay of %v", d)
	}
}
