package service

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

const (
	// manifestMemory is the memory of the container in deploy/kubernetes/deployment.yaml, and
	// manifestGoMemory what the service leaves to Go there.
	manifestMemory   = 256 << 20
	manifestGoMemory = "192MiB"

	attackTime = time.Second
	// visitorTimeout is longer than a busy machine stalls, so that it ends what is never answered.
	visitorTimeout = 30 * time.Second
)

// An attack is what each of many connections sends, to the port of HTTP or of gRPC. It ends when
// the connection does.
type attack struct {
	conns     int
	grpc, tls bool
	http2     bool          // over TLS, whose handshake is done
	time      time.Duration // zero: attackTime
	send      func(net.Conn)
}

var attacks = map[string]attack{
	"messages on one connection": {conns: 1, grpc: true, send: streams(10_000, 1<<20-5, 16<<10)},
	"messages on many connections": {conns: 1000, grpc: true,
		send: streams(10, 1<<20-5, 16<<10)},
	"messages in small frames":  {conns: 8, grpc: true, send: streams(200, 1<<20-5, 1)},
	"calls without messages":    {conns: 20, grpc: true, send: streams(1000, 0, 1)},
	"connections without calls": {conns: 2500, grpc: true, send: streams(0, 0, 1)},
	"bodies": {conns: 4000, send: text(
		"POST /v1/decide HTTP/1.1\r\nHost: localhost\r\nContent-Length: 65536\r\n\r\n", 65535)},
	"chunks of bodies": {conns: 4000, send: text(
		"POST /json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\n", 1048575)},
	"streams of bodies": {conns: 500, tls: true, http2: true, time: 3 * time.Second,
		send: bodies(100)},
	"headers": {conns: 2500, send: text("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ", 16000)},
	"handshakes": {conns: 2500, tls: true, send: text(
		"\x16\x03\x01\x40\x00\x01\x00\xff\xff\x03\x03", 16<<10-10)},
	"handshakes of gRPC": {conns: 2500, grpc: true, tls: true, send: text(
		"\x16\x03\x01\x40\x00\x01\x00\xff\xff\x03\x03", 16<<10-10)},
}

// text sends head and then so many bytes.
func text(head string, bytes int) func(net.Conn) {
	payload := []byte(head + strings.Repeat("x", bytes))
	return func(c net.Conn) { _, _ = c.Write(payload) }
}

// streams opens so many calls, and sends a message to each that lacks a byte.
func streams(calls, size, frame int) func(net.Conn) {
	return requests(calls, size, frame, ":path",
		"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
		"content-type", "application/grpc", "te", "trailers")
}

// bodies opens so many requests over HTTP, and sends nothing of their bodies.
func bodies(streams int) func(net.Conn) {
	return requests(streams, 0, 1, ":path", "/v1/decide", "content-length", "65536")
}

// requests opens so many streams with a header. On each it sends, if size is positive, four bytes
// more than it, in frames.
func requests(streams, size, frame int, header ...string) func(net.Conn) {
	const batch = 100
	return func(c net.Conn) {
		var buffer bytes.Buffer
		flush := func() bool {
			_, err := buffer.WriteTo(c)
			return err == nil
		}
		f := http2.NewFramer(&buffer, nil)
		buffer.WriteString(http2.ClientPreface)
		_ = f.WriteSettings()
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		for field := range slices.Chunk(append([]string{":method", "POST", ":scheme", "http",
			":authority", "localhost"}, header...), 2) {
			_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1],
				Sensitive: true}) // so that each call has the same bytes
		}
		length := binary.BigEndian.AppendUint32([]byte{0}, uint32(size))
		rest := make([]byte, max(0, size-1))
		for from := range (streams + batch - 1) / batch {
			ids := make([]uint32, min(batch, streams-from*batch))
			for i := range ids {
				ids[i] = uint32(2*(from*batch+i) + 1)
				_ = f.WriteHeaders(http2.HeadersFrameParam{
					StreamID: ids[i], BlockFragment: block.Bytes(), EndHeaders: true})
				if size > 0 {
					_ = f.WriteData(ids[i], false, length)
				}
			}
			if !flush() {
				return
			}
			time.Sleep(10 * time.Millisecond) // until the service lets the whole message come
			for _, id := range ids {
				for part := range slices.Chunk(rest, frame) {
					_ = f.WriteData(id, false, part)
					if buffer.Len() > 1<<16 && !flush() {
						return
					}
				}
			}
		}
		flush()
	}
}

// run attacks addr until ctx ends. A connection that ends is followed by another one.
func (a *attack) run(ctx context.Context, addr string, trusted *tls.Config) (wait func()) {
	var wg sync.WaitGroup
	for range a.conns {
		wg.Go(func() {
			for ctx.Err() == nil {
				raw, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
				c := raw
				if a.http2 {
					c = tls.Client(raw, trusted)
				}
				go a.send(c)
				_, _ = io.Copy(io.Discard, c)
				stop()
				_ = c.Close()
				time.Sleep(attackTime / 10) // it attacks by what it sends, not by how often
			}
		})
	}
	return wg.Wait
}

// certificate writes the certificate of httptest and its key.
func certificate(t *testing.T) (cert, key string, client *tls.Config) {
	t.Helper()
	issuer := httptest.NewTLSServer(nil)
	defer issuer.Close()
	pair := issuer.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		key:  {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	client = &tls.Config{RootCAs: x509.NewCertPool()}
	client.RootCAs.AddCert(issuer.Certificate())
	return cert, key, client
}

// TestAttacks: strangers open connections and send requests that never end. The service stays
// within the memory of the manifest, and answers all requests of others.
func TestAttacks(t *testing.T) {
	servers.CountTest(t, "memory")
	peakMemory(t, os.Getpid()) // skips where it is not known
	bin := daemon.Build(t)
	t.Setenv("GOMEMLIMIT", manifestGoMemory)
	cert, key, trusted := certificate(t)
	for name, a := range attacks {
		t.Run(name, func(t *testing.T) {
			port, err := servers.FreePort()
			if err != nil {
				t.Fatal(err)
			}
			target := fmt.Sprintf("127.0.0.1:%d", port)
			flags := []string{"--limit=1000000/1h", "--grpc-addr=" + target}
			secure, scheme := insecure.NewCredentials(), "http"
			if a.tls {
				flags = append(flags, "--tls-cert="+cert, "--tls-key="+key)
				secure, scheme = credentials.NewTLS(trusted), "https"
			}
			d := daemon.Start(t, bin, flags...)
			conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(secure),
				grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
					return fromElsewhere.DialContext(ctx, "tcp", addr)
				}))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			v := &visitor{T: t, url: scheme + "://127.0.0.1:" + d.Port() + "/v1/decide",
				grpc: rls.NewRateLimitServiceClient(conn)}
			transport := &http.Transport{
				TLSClientConfig: trusted, DialContext: fromElsewhere.DialContext}
			defer transport.CloseIdleConnections()
			v.http = &http.Client{Transport: transport, Timeout: visitorTimeout}
			v.visit()
			v.took = [2][]time.Duration{}
			ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(a.time, attackTime))
			defer cancel()
			if !a.grpc {
				target = "127.0.0.1:" + d.Port()
			}
			strange := trusted.Clone()
			strange.ServerName, strange.NextProtos = "127.0.0.1", []string{"h2"}
			wait := a.run(ctx, target, strange)
			for v.visit(); ctx.Err() == nil; v.visit() {
				time.Sleep(5 * time.Millisecond) // between the requests of a visitor
			}
			wait()
			peak := peakMemory(t, d.PID())
			servers.Measured("%s: peak %d MiB; p99 %v over HTTP and %v over gRPC, of %d calls",
				t.Name(), peak>>20, p99(v.took[0]), p99(v.took[1]), len(v.took[0]))
			if peak > manifestMemory {
				t.Errorf("it had %d MiB", peak>>20)
			}
		})
	}
}

// fromElsewhere dials from another address than those who attack.
var fromElsewhere = &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}

// A visitor makes a request of each kind, and notes how long they took. It repeats one once if its
// connection was cut off: on a busy machine it may be the one that was silent for longest.
type visitor struct {
	*testing.T
	url  string
	http *http.Client
	grpc rls.RateLimitServiceClient
	took [2][]time.Duration
}

func (v *visitor) visit() {
	began := time.Now()
	post := func() (*http.Response, error) {
		return v.http.Post(v.url, "application/json", strings.NewReader(`{"key":"visitor"}`))
	}
	res, err := post()
	if err != nil {
		res, err = post()
	}
	if err != nil {
		v.Errorf("a request: %v", err)
	} else {
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			v.Errorf("a request: %d", res.StatusCode)
		}
	}
	v.took[0] = append(v.took[0], time.Since(began))
	began = time.Now()
	call := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), visitorTimeout)
		defer cancel()
		_, err := v.grpc.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "any",
			Descriptors: []*ratelimitv3.RateLimitDescriptor{{
				Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "key", Value: "visitor"}},
			}}})
		return err
	}
	if err = call(); err != nil {
		err = call()
	}
	if err != nil {
		v.Errorf("a call: %v", err)
	}
	v.took[1] = append(v.took[1], time.Since(began))
}

func p99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*99/100].Round(time.Millisecond)
}

// peakMemory returns the most memory that a process has had.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip(err) // not on Linux
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	text, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
