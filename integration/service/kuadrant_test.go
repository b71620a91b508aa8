package service

import (
	"context"
	"fmt"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestKuadrant reserves in one process, kills it, and commits in another one and in one that starts
// later: each reservation is charged once. What the killed process held and nobody commits is free
// again after its ttl.
func TestKuadrant(t *testing.T) {
	t.Parallel()
	bin := daemon.Build(t)
	servers.EachImage(t, func(t *testing.T, image string) {
		t.Parallel()
		server := servers.Start(t, image)
		path, _ := byRename(t, "limits:\n"+
			"  - {name: tokens, when: {domain: llm}, key: [user], max: 100/1h, holds: 10s}\n")
		flags := append(storeOf(server), "--config="+path)
		first, killed := startKuadrant(t, bin, flags...)
		second, _ := startKuadrant(t, bin, flags...)
		var ids []string
		for _, n := range []uint64{30, 30, 40} {
			ids = append(ids, first.reserve(t, true, n))
		}
		killed.Kill(t)
		second.reserve(t, false, 1)

		second.commit(t, true, ids[0], 10)
		second.commit(t, false, ids[0], 10)
		third, _ := startKuadrant(t, bin, flags...)
		third.commit(t, false, ids[0], 10)
		third.commit(t, true, ids[1], 20)
		second.commit(t, false, ids[1], 20)
		servers.Within(t, func() bool { return third.free(t, 70) },
			"what the killed process held is not free")
		third.commit(t, true, third.reserve(t, true, 70), 0)
		third.commit(t, true, ids[2], 40) // late
		second.commit(t, false, ids[2], 40)
		if !second.free(t, 30) || second.free(t, 31) {
			t.Error("not 30 units are left")
		}
	})
}

// kuadrantClient asks for units of one user.
type kuadrantClient struct {
	kuadrant.RateLimitServiceClient
}

var userTokens = []*ratelimitv3.RateLimitDescriptor{{
	Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "user", Value: "a"}}}}

func startKuadrant(t *testing.T, bin string, flags ...string) (kuadrantClient, *daemon.Daemon) {
	t.Helper()
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	d := daemon.Start(t, bin, append(flags, "--grpc-addr="+addr)...)
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return kuadrantClient{kuadrant.NewRateLimitServiceClient(conn)}, d
}

// reserve returns the id.
func (c kuadrantClient) reserve(t *testing.T, want bool, n uint64) string {
	t.Helper()
	got, err := c.Reserve(t.Context(), &kuadrant.ReserveRequest{
		Domain: "llm", Descriptors: userTokens, Amount: n})
	allowed := got.GetCode() == rls.RateLimitResponse_OK
	if err != nil || allowed != want || allowed != (got.GetReservationId() != "") {
		t.Fatalf("%d units: %v %v, want allowed %t", n, got, err, want)
	}
	return got.GetReservationId()
}

func (c kuadrantClient) commit(t *testing.T, wantReleased bool, id string, n uint64) {
	t.Helper()
	got, err := c.Commit(t.Context(), &kuadrant.CommitRequest{
		Domain: "llm", Descriptors: userTokens, ReservationId: id, ActualAmount: n})
	if err != nil || got.GetReservationReleased() != wantReleased {
		t.Errorf("%d units: %v %v, want released %t", n, got, err, wantReleased)
	}
}

// free reports whether n units are free.
func (c kuadrantClient) free(t *testing.T, n uint32) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got, err := c.CheckRateLimit(ctx, &rls.RateLimitRequest{
		Domain: "llm", Descriptors: userTokens, HitsAddend: n})
	if err != nil {
		t.Fatal(err)
	}
	return got.GetOverallCode() == rls.RateLimitResponse_OK
}
