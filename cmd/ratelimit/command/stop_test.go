package command

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

const (
	h2Preface  = apitest.HTTP2Preface
	h2Settings = apitest.HTTP2Settings
)

// An address is one of a service, with its protocol.
type address struct {
	network, addr string
	tls           *tls.Config // nil without
}

// dial returns a connection that ends with the test, with TLS if the address has it.
func (d address) dial(t *testing.T, protocols ...string) net.Conn {
	t.Helper()
	conn := d.raw(t)
	if d.tls == nil {
		return conn
	}
	config := d.tls.Clone()
	config.NextProtos = protocols
	secure := tls.Client(conn, config)
	if err := secure.Handshake(); err != nil {
		t.Fatal(err)
	}
	return secure
}

// raw returns a connection without TLS, whatever the address has.
func (d address) raw(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial(d.network, d.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// client returns a client of gRPC on a connection that the test has made.
func (d address) client(t *testing.T) *grpc.ClientConn {
	t.Helper()
	client, err := grpc.NewClient("passthrough:///any",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			return d.dial(t, "h2"), nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// answered reads an answer of HTTP.
func answered(t *testing.T, r *bufio.Reader, want int) *http.Response {
	t.Helper()
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Error(err)
	} else if res.StatusCode != want {
		t.Errorf("status %d, want %d", res.StatusCode, want)
	}
	return res
}

const helloHead = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"

const waitingBody = `{"hold_ms":0,"wait_ms":5000,"claims":[{"limit":"calls","key":"a"}]}`

// A dialog is what a client does at an address. The function that it returns, if any, is called
// after the stop.
type dialog func(t *testing.T, d address) (after func())

func saying(text string, protocols ...string) dialog {
	return func(t *testing.T, d address) func() {
		say(t, d.dial(t, protocols...), text)
		return nil
	}
}

func silent(t *testing.T, d address) func() { d.raw(t); return nil }

func halfHandshake(t *testing.T, d address) func() { say(t, d.raw(t), helloHead); return nil }

func keepsAlive(t *testing.T, d address) func() {
	c := d.dial(t)
	say(t, c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	answered(t, bufio.NewReader(c), http.StatusOK)
	return nil
}

func views(t *testing.T, d address) func() {
	c := d.dial(t)
	say(t, c, "GET /dashboard/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	answered(t, bufio.NewReader(c), http.StatusOK)
	return nil
}

// waitsForCall waits for a call in flight that does not end: it is decided at the stop.
func waitsForCall(t *testing.T, d address) func() {
	c := d.dial(t)
	r := bufio.NewReader(c)
	ask := func() { // when it returns, the request is in flight
		say(t, c, fmt.Sprintf("POST /v1/decide HTTP/1.1\r\nHost: localhost\r\n"+
			"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(waitingBody)))
		answered(t, r, http.StatusContinue)
		say(t, c, waitingBody)
	}
	ask()
	res := answered(t, r, http.StatusOK)
	if res != nil {
		_, _ = io.Copy(io.Discard, res.Body)
	}
	began := time.Now()
	ask()
	return func() {
		answered(t, r, http.StatusTooManyRequests)
		if took := time.Since(began); took >= 30*time.Second {
			t.Errorf("it waited for %v", took)
		}
	}
}

func watches(t *testing.T, d address) func() {
	stream, err := healthpb.NewHealthClient(d.client(t)).Watch(t.Context(),
		new(healthpb.HealthCheckRequest))
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Error(err)
	}
	return func() {
		for err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("the stream ended with %v", err)
		}
	}
}

func reflects(t *testing.T, d address) func() {
	stream, err := reflectionpb.NewServerReflectionClient(d.client(t)).
		ServerReflectionInfo(t.Context())
	if err == nil {
		err = stream.Send(&reflectionpb.ServerReflectionRequest{
			MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Error(err)
	}
	return nil
}

func calls(t *testing.T, d address) func() {
	_, err := rls.NewRateLimitServiceClient(d.client(t)).ShouldRateLimit(t.Context(),
		&rls.RateLimitRequest{})
	if status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	return nil
}

// beginsCall sends the header of a call and no message.
func beginsCall(t *testing.T, d address) func() {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	client := d.client(t)
	_, err := client.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true},
		rls.RateLimitService_ShouldRateLimit_FullMethodName)
	if err == nil { // an answer on the same connection says that the service has the header
		_, err = healthpb.NewHealthClient(client).Check(ctx, new(healthpb.HealthCheckRequest))
	}
	if err != nil {
		t.Error(err)
	}
	return nil
}

// TestStopDoesNotWait: what is no request in flight does not keep a service from ending with code
// 0, at any of its addresses, and what waits is decided.
func TestStopDoesNotWait(t *testing.T) {
	a := apitest.NewAuthority(t)
	a.Issue("server")
	trusted := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}
	trusted.RootCAs.AddCert(a.Cert)
	http1 := map[string]dialog{
		"silent": silent, "half a header": saying("GET /healthz HTTP/1.1\r\nHost: "),
		"keep-alive": keepsAlive, "events": views, "a wait": waitsForCall,
	}
	http2 := map[string]dialog{
		"half a handshake": halfHandshake, "no preface": saying("", "h2"),
		"half a preface": saying(h2Preface[:9], "h2"), "idle": saying(h2Preface+h2Settings, "h2"),
	}
	ofGRPC := map[string]dialog{
		"silent": silent, "half a preface": saying(h2Preface[:9], "h2"),
		"no settings": saying(h2Preface, "h2"), "idle": saying(h2Preface+h2Settings, "h2"),
		"watch": watches, "reflection": reflects, "after a call": calls,
		"half a call": beginsCall, "half a frame": saying(h2Preface+h2Settings+"\x00\x01", "h2"),
	}
	secure := []string{"--tls-cert=" + a.Path("server.pem"), "--tls-key=" + a.Path("server.key")}
	var group sync.WaitGroup // not t.Parallel, since they only wait
	test := func(name string, dialogs map[string]dialog, isGRPC, isUnix bool, trusted *tls.Config) {
		for kind, do := range dialogs {
			group.Go(func() {
				t.Run(name+"/"+kind, func(t *testing.T) {
					args := []string{"--limit=9/1h", "--in-flight=calls=1/10m"}
					if trusted != nil {
						args = append(args, secure...)
					}
					checkStop(t, args, isGRPC, isUnix, trusted, do)
				})
			})
		}
	}
	test("HTTP", http1, false, false, nil)
	test("socket", http1, false, true, nil)
	test("HTTPS", http1, false, false, trusted)
	test("HTTP2", http2, false, false, trusted)
	test("gRPC", ofGRPC, true, false, nil)
	test("gRPC socket", ofGRPC, true, true, nil)
	test("gRPC TLS", ofGRPC, true, false, trusted)
	test("gRPC TLS", map[string]dialog{"half a handshake": halfHandshake}, true, false, trusted)
	group.Wait()
}

// starting is held until a dialog is over, since clients have a few seconds for a handshake: many
// at once could take them on a busy machine.
var starting sync.Mutex

var grpcAddr = regexp.MustCompile(`"others":\["([^"]+)"`)

// checkStop starts a service, stops it after a dialog, and checks that it ends.
func checkStop(
	t *testing.T, args []string, isGRPC, isUnix bool, trusted *tls.Config, do dialog,
) {
	d := address{network: "tcp", tls: trusted}
	listen := "127.0.0.1:0"
	if isUnix {
		d.network, d.addr = "unix", filepath.Join(t.TempDir(), "s")
		listen = "unix:" + d.addr
	}
	flag := "--addr="
	if isGRPC {
		flag = "--grpc-addr="
	}
	starting.Lock()
	unlock := sync.OnceFunc(starting.Unlock)
	defer unlock()
	url, log, stop := start(t, append(args, flag+listen)...)
	switch {
	case isUnix:
	case isGRPC:
		d.addr = grpcAddr.FindStringSubmatch(log.String())[1]
	default:
		d.addr = strings.TrimPrefix(url, "http://")
	}
	after := do(t, d)
	unlock()
	began := time.Now()
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d: %s", code, log)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if after != nil {
		after()
	}
}
