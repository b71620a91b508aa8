package command

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestReady: ratelimit ready asks a service at each kind of address, and exits with 0 only if it is
// ready.
func TestReady(t *testing.T) {
	ca := apitest.NewAuthority(t)
	ca.Issue("service")
	cert, key := ca.Path("service.pem"), ca.Path("service.key")
	plain, _, _ := start(t, "--limit=1/1m")
	secret, _, _ := start(t, "--tls-cert="+cert, "--tls-key="+key)
	mutual, _, _ := start(t, "--tls-cert="+cert, "--tls-key="+key,
		"--tls-client-ca="+ca.Path("ca.pem"))
	down, _, _ := start(t, "--store=redis://"+unusedAddr(t), "--on-failure=closed")
	open, _, _ := start(t, "--store=redis://"+unusedAddr(t), "--on-failure=open")
	socket := "unix:" + filepath.Join(t.TempDir(), "admin.sock")
	start(t, "--tls-cert="+cert, "--tls-key="+key, "--tls-client-ca="+ca.Path("ca.pem"),
		"--admin-addr="+socket)
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	quiet, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = quiet.Close() })

	addr := func(url string) string { return url[strings.LastIndex(url, "/")+1:] }
	port := func(url string) string { return url[strings.LastIndexByte(url, ':'):] }
	withTLS := map[string]string{"RATELIMIT_TLS_CERT": cert, "RATELIMIT_TLS_KEY": key}
	for _, tt := range []struct {
		name, args string
		env        map[string]string
		code       int
		want       string // in what it prints
	}{
		{"addr", "--addr=" + addr(plain), nil, exitOK, "ready\n"},
		{"all addresses", "--addr=" + port(plain), nil, exitOK, "ready\n"},
		{"all addresses of IPv4", "--addr=0.0.0.0" + port(plain), nil, exitOK, "ready\n"},
		{"the variable", "", map[string]string{"RATELIMIT_ADDR": port(plain)}, exitOK, "ready\n"},
		{"other variables of the service", "", map[string]string{"RATELIMIT_ADDR": port(plain),
			"RATELIMIT_ON_FAILURE": "closed", "RATELIMIT_TLS_CERT": ""}, exitOK, "ready\n"},
		{"a misspelled variable", "", map[string]string{"RATELIMIT_ADR": port(plain)}, exitUsage,
			"RATELIMIT_ADR"},
		{"url", "--url=" + plain, map[string]string{"RATELIMIT_ADDR": ":1"}, exitOK, "ready\n"},
		{"TLS", "--addr=" + addr(secret), withTLS, exitOK, "ready\n"},
		{"TLS without the certificate", "--addr=" + addr(secret), nil, exitError, "400"},
		{"TLS with certificates of clients", "--addr=" + addr(mutual), withTLS, exitOK, "ready\n"},
		{"a URL with a certificate of a stranger", "--url=" + strings.Replace(secret, "http:",
			"https:", 1), withTLS, exitError, "certificate"},
		{"a socket beside TLS", "--addr=" + socket, withTLS, exitOK, "ready\n"},
		{"no socket", "--addr=" + socket + "x", nil, exitError, "not ready"},
		{"no store", "--addr=" + addr(down), nil, exitError, "The store is unavailable."},
		{"no store, and open", "--addr=" + addr(open), nil, exitOK, "ready\n"},
		{"nobody", "--addr=" + unusedAddr(t), nil, exitError, "refused"},
		{"another service", "--addr=" + addr(other.URL), nil, exitError, "status 404"},
		{"no answer", "--timeout=50ms --addr=" + quiet.Addr().String(), nil, exitError,
			"not ready"},
		{"no port", "--addr=localhost", nil, exitUsage, "HOST:PORT"},
		{"any port", "--addr=:0", nil, exitUsage, "HOST:PORT"},
		{"no URL", "--url=localhost:8080", nil, exitUsage, "not the URL"},
		{"no time", "--timeout=0s", nil, exitUsage, "not positive"},
		{"half a pair", "--tls-cert=" + cert, nil, exitUsage, "need each other"},
		{"no such pair", "--tls-cert=" + key + " --tls-key=" + key, nil, exitError, "TLS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			code, stdout, stderr := command(t, append([]string{"ready"},
				strings.Fields(tt.args)...)...)
			if code != tt.code || !strings.Contains(stdout+stderr, tt.want) {
				t.Errorf("exit code %d, want %d with %q: %s%s", code, tt.code, tt.want, stdout,
					stderr)
			}
		})
	}
}
