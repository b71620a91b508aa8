package envoy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/conns"
	"github.com/truewindow/ratelimit/driver"
)

// bounded serves in memory within bounds, until the function that it returns is called.
func bounded(t *testing.T, bounds conns.Bounds) (*bufconn.Listener, *Server, func()) {
	t.Helper()
	return boundedOn(t, down{}, bounds)
}

func boundedOn(
	t *testing.T, store ratelimit.Store, bounds conns.Bounds,
) (*bufconn.Listener, *Server, func()) {
	t.Helper()
	s := NewServer(newService(t, store, Config{}, new(strings.Builder)),
		ServerOptions{Bounds: bounds})
	listener := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	return listener, s, func() {
		_ = s.Stop(context.Background())
		<-served
	}
}

// TestCallsHoldNothing: calls hold what they send until they are answered, refused or canceled.
func TestCallsHoldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := conns.NewBudget(1 << 30)
		listener, _, stop := bounded(t, conns.Bounds{Budget: budget})
		conn := dial(t, listener)
		client := rls.NewRateLimitServiceClient(conn)
		for _, value := range []string{"root", strings.Repeat("v", 100_000),
			strings.Repeat("v", maxMessage)} {
			_, _ = client.ShouldRateLimit(t.Context(), request("user="+value))
		}
		_, err := healthpb.NewHealthClient(conn).Check(t.Context(),
			&healthpb.HealthCheckRequest{Service: "unknown"})
		if status.Code(err) != codes.NotFound {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		_, err = conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true},
			rls.RateLimitService_ShouldRateLimit_FullMethodName)
		synctest.Wait()
		if held := budget.Held(); err != nil || held < callBytes {
			t.Errorf("a call without a message holds %d bytes; %v", held, err)
		}
		cancel()
		watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(),
			new(healthpb.HealthCheckRequest))
		if err == nil {
			_, err = watch.Recv()
		}
		synctest.Wait()
		if held := budget.Held(); err != nil || held != 0 {
			t.Errorf("calls that are over, and a Watch that is read, hold %d bytes; %v", held, err)
		}
		conn.Close()
		stop()
	})
}

// TestMessageTakesTooLong: a message that is not there in time ends its connection, and a stream
// that has been answered does not.
func TestMessageTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, _, stop := bounded(t, conns.Bounds{Budget: conns.NewBudget(1 << 30)})
		conn := dial(t, listener)
		watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(),
			new(healthpb.HealthCheckRequest))
		if err == nil {
			_, err = watch.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * messageTime)
		began := time.Now()
		stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true},
			rls.RateLimitService_ShouldRateLimit_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		err = stream.RecvMsg(new(rls.RateLimitResponse))
		if took := time.Since(began); status.Code(err) != codes.Unavailable || took != messageTime {
			t.Errorf("%v after %v", err, took)
		}
		conn.Close()
		stop()
	})
}

// TestLargestIsCut: a connection whose calls hold more than the budget is cut off, and calls on
// another one are answered.
func TestLargestIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := conns.NewBudget(1 << 20)
		listener, _, stop := bounded(t, conns.Bounds{Budget: budget})
		other := dial(t, listener)
		call := func() {
			if _, err := rls.NewRateLimitServiceClient(other).ShouldRateLimit(t.Context(),
				request("user=root")); err != nil {
				t.Error(err)
			}
		}
		call()
		conn := dial(t, listener)
		var err error
		for range 200 { // each holds callBytes
			if _, err = conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true},
				rls.RateLimitService_ShouldRateLimit_FullMethodName); err != nil {
				break
			}
			time.Sleep(time.Millisecond)
			call()
		}
		synctest.Wait()
		if held := budget.Held(); held >= 1<<20 {
			t.Errorf("%d bytes are held", held)
		}
		conn.Close()
		other.Close()
		stop()
		if held := budget.Held(); held != 0 {
			t.Errorf("%d bytes are held after the end", held)
		}
	})
}

// TestSilentClients: a client that does not finish a handshake or a preface is gone after a while.
func TestSilentClients(t *testing.T) {
	for _, said := range []string{"", preface[:5], preface} {
		synctest.Test(t, func(t *testing.T) {
			listener, _, stop := bounded(t, conns.Bounds{})
			conn, err := listener.Dial()
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, said)
			began := time.Now()
			_, _ = io.Copy(io.Discard, conn)
			if took := time.Since(began); took != setupTime {
				t.Errorf("%q: %v", said, took)
			}
			stop()
		})
	}
}

// TestWatches: a stream too many ends the oldest one, and the end of the service all.
func TestWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, server, stop := bounded(t, conns.Bounds{})
		conn := dial(t, listener)
		var all []grpc.ServerStreamingClient[healthpb.HealthCheckResponse]
		watch := func() {
			stream, err := healthpb.NewHealthClient(conn).Watch(t.Context(),
				new(healthpb.HealthCheckRequest))
			if err == nil || errors.Is(err, io.EOF) { // a stream that has ended already
				_, err = stream.Recv()
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, stream)
		}
		for range maxWatches + 1 {
			watch()
		}
		if _, err := all[0].Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("the oldest stream: %v", err)
		}
		if n := len(server.watches.open); n != maxWatches {
			t.Errorf("%d streams are open", n)
		}
		server.watches.end()
		for i, stream := range all[1:] {
			if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
				t.Errorf("stream %d: %v", i+1, err)
			}
		}
		stream, err := healthpb.NewHealthClient(conn).Watch(t.Context(),
			new(healthpb.HealthCheckRequest))
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("a stream after the end: %v", err)
		}
		conn.Close()
		stop()
	})
}

// TestReflections: a stream of reflection too many is refused, and others end after a while.
func TestReflections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, _, stop := bounded(t, conns.Bounds{})
		conn := dial(t, listener)
		var first reflectionpb.ServerReflection_ServerReflectionInfoClient
		ask := func() error {
			stream, err := reflectionpb.NewServerReflectionClient(conn).
				ServerReflectionInfo(t.Context())
			if err == nil {
				err = stream.Send(&reflectionpb.ServerReflectionRequest{
					MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
			}
			if err == nil || errors.Is(err, io.EOF) { // a stream that has ended already
				_, err = stream.Recv()
			}
			if first == nil {
				first = stream
			}
			return err
		}
		for range maxReflections {
			if err := ask(); err != nil {
				t.Error(err)
			}
		}
		if err := ask(); status.Code(err) != codes.Unavailable {
			t.Errorf("one too many: %v", err)
		}
		began := time.Now()
		_, err := first.Recv()
		if took := time.Since(began); status.Code(err) != codes.Unavailable ||
			took != reflectionTime {
			t.Errorf("%v after %v", err, took)
		}
		synctest.Wait()
		if err := ask(); err != nil {
			t.Error(err)
		}
		conn.Close()
		stop()
	})
}

// TestUnreadAnswers: a call holds what its answer may need until its client has let it come.
func TestUnreadAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := conns.NewBudget(1 << 30)
		listener, _, stop := bounded(t, conns.Bounds{Budget: budget})
		client, err := listener.Dial()
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, client) }()
		field := func(name, value string) string { // of HPACK, and in no table
			return "\x10" + string(rune(len(name))) + name + string(rune(len(value))) + value
		}
		header := field(":method", "POST") + field(":scheme", "http") + field(":authority", "a") +
			field(":path", rls.RateLimitService_ShouldRateLimit_FullMethodName) +
			field("content-type", "application/grpc") + field("te", "trailers")
		message := "\x00\x00\x00\x00\x0f" + "\x0a\x03any" + "\x12\x08\x0a\x06\x0a\x01k\x12\x01v"
		frame := func(kind, flags byte, text string) string {
			return string([]byte{0, 0, byte(len(text)), kind, flags, 0, 0, 0, 1}) + text
		}
		_, _ = io.WriteString(client, preface+
			"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00"+ // without a window
			"\x00\x00\x00\x04\x01\x00\x00\x00\x00"+
			frame(frameHeaders, 4, header)+frame(frameData, endOfStream, message))
		synctest.Wait()
		if held := budget.Held(); held < answerBytes || held > callBytes {
			t.Errorf("a call whose answer is not read holds %d bytes", held)
		}
		_, _ = io.WriteString(client, // a window for the stream
			"\x00\x00\x04\x08\x00\x00\x00\x00\x01\x00\x00\x10\x00")
		synctest.Wait()
		if held := budget.Held(); held != 0 {
			t.Errorf("a call that is over holds %d bytes", held)
		}
		_ = client.Close()
		stop()
	})
}

// slow is a store that takes a while.
type slow struct{ ratelimit.Store }

func (s slow) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	time.Sleep(20 * time.Millisecond)
	return s.Store.TakeAll(ctx, ds, out)
}

func (s slow) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	time.Sleep(20 * time.Millisecond)
	return s.Store.Take(ctx, d)
}

// TestManyCallsAreNotCut: as many calls as connections may have are answered within the bounds of a
// container, though the store is slow.
func TestManyCallsAreNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		listener, _, stop := boundedOn(t, slow{store}, conns.Bounds{
			Budget: conns.NewBudget(48 << 20),
			OnCut:  func(why string) { t.Error(why) }})
		large := request("plan=" + strings.Repeat("v", 1000))
		var group sync.WaitGroup
		for range 8 {
			conn := dial(t, listener)
			defer conn.Close()
			client := rls.NewRateLimitServiceClient(conn)
			for range maxStreams {
				group.Go(func() {
					if _, err := client.ShouldRateLimit(t.Context(), large); err != nil {
						t.Error(err)
					}
				})
			}
		}
		group.Wait()
		stop()
		store.Close()
	})
}

// TestScanner finds the same frames in whatever pieces they come.
func TestScanner(t *testing.T) {
	var text bytes.Buffer
	text.WriteString(preface)
	for _, f := range []string{"\x00\x00\x06\x04\x00\x00\x00\x00\x00settin",
		"\x00\x00\x03\x01\x05\x80\x00\x01\x03abc", "\x00\x00\x00\x03\x00\x00\x00\x01\x03"} {
		text.WriteString(f)
	}
	want := []frame{{6, 4, 0, 0}, {3, 1, 5, 259}, {0, 3, 0, 259}}
	for size := 1; size <= text.Len(); size++ {
		s := scanner{skip: len(preface)}
		var got []frame
		for rest := text.Bytes(); len(rest) > 0; {
			n := min(size, len(rest))
			s.scan(rest[:n], func(f frame) { got = append(got, f) })
			rest = rest[n:]
		}
		if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
			t.Errorf("in pieces of %d: %v", size, got)
		}
	}
}
