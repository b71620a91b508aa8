package command

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestTLS: clients need a certificate, and the service's own is exchanged while it runs. A broken
// file changes nothing.
func TestTLS(t *testing.T) {
	a := apitest.NewAuthority(t)
	first := a.Issue("server")
	a.Issue("client")
	url, log, _ := start(t, "--tls-cert="+a.Path("server.pem"), "--tls-key="+a.Path("server.key"),
		"--tls-client-ca="+a.Path("ca.pem"))
	config := a.Client("").Transport.(*http.Transport).TLSClientConfig
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
	client := a.Client("client")
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
	second := a.Issue("server")
	for serial() != second {
	}
	a.Write("server.pem", "CERTIFICATE", []byte("broken"))
	for !strings.Contains(log.String(), "what was in force stays") {
	}
	if got := serial(); got != second {
		t.Errorf("the certificate is %d after a broken file, want %d", got, second)
	}
	shown := apitest.ScrapeWith(t, client, strings.TrimSuffix(url, "/healthz"))
	apitest.WantSeries(t, shown, map[string]string{
		`ratelimit_credentials_valid file="tls-cert"`:      "0",
		`ratelimit_credentials_valid file="tls-client-ca"`: "1",
		`ratelimit_certificate_expiry_timestamp_seconds file="tls-cert"`: strconv.
			FormatFloat(float64(a.Expiry.Unix()), 'g', -1, 64),
		`ratelimit_certificate_expiry_timestamp_seconds file="tls-client-ca"`: strconv.
			FormatFloat(float64(a.Cert.NotAfter.Unix()), 'g', -1, 64)})
	if strings.Contains(shown, `failures_total{ratelimit_file="tls-cert"} 0`) {
		t.Error("a failed load is not counted")
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
	a := apitest.NewAuthority(t)
	a.Issue("server")
	url, log, stop := start(t,
		"--tls-cert="+a.Path("server.pem"), "--tls-key="+a.Path("server.key"))
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
