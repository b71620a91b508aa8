package daemon

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An authority issues certificates.
type authority struct {
	*testing.T
	dir    string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	issued int64
	expiry time.Time // of the last one
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{T: t, dir: t.TempDir()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true,
		BasicConstraintsValid: true, Subject: pkix.Name{CommonName: "authority"},
		NotAfter: time.Now().Add(time.Hour)}
	a.key = a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	return key
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) write(name, kind string, der []byte) {
	a.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(a.path(name), text, 0o600); err != nil {
		a.Fatal(err)
	}
}

// issue writes name.pem and name.key, for 127.0.0.1, and returns the serial number.
func (a *authority) issue(name string) int64 {
	a.Helper()
	a.issued++
	a.expiry = time.Now().Add(time.Duration(a.issued) * time.Hour)
	template := &x509.Certificate{SerialNumber: big.NewInt(100 + a.issued),
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: a.expiry}
	key := a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.Fatal(err)
	}
	a.write(name+".key", "EC PRIVATE KEY", private)
	a.write(name+".pem", "CERTIFICATE", der)
	return 100 + a.issued
}

// client returns a client that trusts a and has the certificate name, if that is not "".
func (a *authority) client(name string) *http.Client {
	a.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AddCert(a.cert)
	if name != "" {
		pair, err := tls.LoadX509KeyPair(a.path(name+".pem"), a.path(name+".key"))
		if err != nil {
			a.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config,
		DisableKeepAlives: true, ForceAttemptHTTP2: true}}
}

// TestLastExpiry: of several authorities the one that expires last counts, in any order.
func TestLastExpiry(t *testing.T) {
	a := newAuthority(t)
	var texts [2]string
	for i, name := range []string{"first", "last"} {
		a.issue(name)
		text, err := os.ReadFile(a.path(name + ".pem"))
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	for _, text := range []string{texts[0] + texts[1], texts[1] + texts[0]} {
		if got := lastExpiry([]byte(text)); got.Unix() != a.expiry.Unix() {
			t.Errorf("%v, want %v", got, a.expiry)
		}
	}
}

// TestTLS: clients need a certificate, and the service's own is exchanged while it runs. A broken
// file changes nothing.
func TestTLS(t *testing.T) {
	a := newAuthority(t)
	first := a.issue("server")
	a.issue("client")
	url, log, _ := start(t, "--tls-cert="+a.path("server.pem"), "--tls-key="+a.path("server.key"),
		"--tls-client-ca="+a.path("ca.pem"))
	config := a.client("").Transport.(*http.Transport).TLSClientConfig
	conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "http://"), config)
	if err != nil {
		t.Fatal(err) // TLS 1.3 asks for the certificate later
	}
	if _, err = conn.Read(make([]byte, 1)); err == nil ||
		!strings.Contains(err.Error(), "certificate required") {
		t.Errorf("a client without a certificate: %v, want that it needs one", err)
	}
	_ = conn.Close()
	url = strings.Replace(url, "http:", "https:", 1) + "/healthz"
	client := a.client("client")
	serial := func() int64 {
		res, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK || res.ProtoMajor != 2 {
			t.Errorf("%d, HTTP/%d", res.StatusCode, res.ProtoMajor)
		}
		return res.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	if got := serial(); got != first {
		t.Errorf("the certificate is %d, want %d", got, first)
	}
	second := a.issue("server")
	for serial() != second {
	}
	a.write("server.pem", "CERTIFICATE", []byte("broken"))
	for !strings.Contains(log.String(), "what was in force stays") {
	}
	if got := serial(); got != second {
		t.Errorf("the certificate is %d after a broken file, want %d", got, second)
	}
	shown := scrapeWith(t, client, strings.TrimSuffix(url, "/healthz"))
	wantSeries(t, shown, map[string]string{
		`ratelimit_credentials_valid file="tls-cert"`:      "0",
		`ratelimit_credentials_valid file="tls-client-ca"`: "1",
		`ratelimit_certificate_expiry_timestamp_seconds file="tls-cert"`: strconv.
			FormatFloat(float64(a.expiry.Unix()), 'g', -1, 64),
		`ratelimit_certificate_expiry_timestamp_seconds file="tls-client-ca"`: strconv.
			FormatFloat(float64(a.cert.NotAfter.Unix()), 'g', -1, 64)})
	if strings.Contains(shown, `failures_total{ratelimit_file="tls-cert"} 0`) {
		t.Error("a failed load is not counted")
	}
}

func TestTLSFlags(t *testing.T) {
	for want, f := range map[string]tlsFlags{
		"need each other": {Cert: "a"}, "need each": {Key: "a"},
		"needs --tls-cert": {ClientCA: "a"},
	} {
		if err := f.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", f, err, want)
		}
	}
}

// TestUnixSocket: a service on a socket answers whatever the host; a socket that was left behind is
// replaced, one in use and a file are not.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	left, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = left.Close()
	start(t, "--addr=unix:"+path)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
	res, err := client.Get("http://any.example/readyz")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("status %d", res.StatusCode)
	}
}

// TestNoSocket: neither the socket of a process that listens nor a file is replaced.
func TestNoSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	running, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	if l, err := listen("unix:" + path); err == nil {
		_ = l.Close()
		t.Error("the socket of a running service was replaced")
	} else if !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("the socket of a running service: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := listen("unix:" + file); err == nil {
		_ = l.Close()
		t.Error("a file was replaced")
	} else if !strings.Contains(err.Error(), "is a file and not a socket") {
		t.Errorf("a file: %v", err)
	}
}

// TestAdminAddr: with --admin-addr, --addr answers only what decides.
func TestAdminAddr(t *testing.T) {
	admin := unusedAddr(t)
	url, _, _ := start(t, "--admin-addr="+admin, "--top-keys=1")
	for path, want := range map[string][2]int{
		"/metrics": {404, 200}, "/v1/top-keys": {404, 200}, "/healthz": {200, 200},
		"/readyz": {200, 200}, "/nowhere": {404, 404},
	} {
		main, _ := get(t, url+path)
		other, _ := get(t, "http://"+admin+path)
		if got := [2]int{main, other}; got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	if status, _ := post(t, url+"/v1/reset", `{"key":"first"}`); status != http.StatusNotFound {
		t.Errorf("reset on --addr: %d", status)
	}
	if status, _ := post(t, "http://"+admin+"/v1/reset", `{"key":"first"}`); status != 204 {
		t.Errorf("reset on --admin-addr: %d", status)
	}
}

// TestHandshakeLog: handshakes that fail log one line a second, with how many there were before,
// and a panic is always logged.
func TestHandshakeLog(t *testing.T) {
	a := newAuthority(t)
	a.issue("server")
	url, log, stop := start(t,
		"--tls-cert="+a.path("server.pem"), "--tls-key="+a.path("server.key"))
	began := time.Now()
	for range 200 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "this is no handshake\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn) // until it has failed
		_ = conn.Close()
	}
	stop()
	most := 1 + int(time.Since(began)/time.Second)
	if n := strings.Count(log.String(), "TLS handshake error"); n < 1 || n > most {
		t.Errorf("%d lines, want at most %d: %s", n, most, log)
	}
}

// TestServerErrors: what clients can cause is one line a second, and a panic always is one.
func TestServerErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		errors := &serverErrors{log: slog.New(slog.NewTextHandler(&text, nil))}
		for range 3 {
			for _, line := range []string{"http: TLS handshake error from 192.0.2.1:1: EOF\n",
				"http: panic serving 192.0.2.1:1: boom\n"} {
				if n, err := errors.Write([]byte(line)); n != len(line) || err != nil {
					t.Errorf("%d, %v", n, err)
				}
			}
		}
		time.Sleep(time.Second)
		_, _ = errors.Write([]byte("http: TLS handshake error\n"))
		if got := text.String(); strings.Count(got, "panic") != 3 ||
			strings.Count(got, "TLS handshake error") != 2 ||
			!strings.Contains(got, "suppressed=2") {
			t.Error(got)
		}
	})
}
