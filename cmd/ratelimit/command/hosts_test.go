package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
)

// TestDNSRebinding: if the name of another site resolves to this machine, its pages have the same
// origin as the daemon in a browser. Only the name in Host shows the difference.
func TestDNSRebinding(t *testing.T) {
	url, _, _ := start(t, "--limit=1/1h", "--host=limits.internal", "--host=Other.Internal.")
	take := func(host string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/decide",
			strings.NewReader(`{"key":"k"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("Origin", "http://"+host)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	port := url[strings.LastIndexByte(url, ':'):]
	if status, body := take("elsewhere.example" + port); status != http.StatusMisdirectedRequest {
		t.Errorf("another site's name: %d %s", status, body)
	}
	if status, body := take("limits.internal"); status != http.StatusOK {
		t.Errorf("a name of the daemon: %d %s", status, body)
	}
	if status, body := take("other.internal" + port); status != http.StatusTooManyRequests ||
		!strings.Contains(body, `"name":"1h0m0s"`) {
		t.Errorf("another name of the daemon: %d %s", status, body)
	}
}

// TestCheckUnderAnyName: proxies ask under the names of their sites, and nothing else is answered
// under these.
func TestCheckUnderAnyName(t *testing.T) {
	url, _, _ := start(t, "--limit=1/1h", "--entry=key=client", "--host=limits")
	ask := func(path, host string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	for i, want := range []int{200, 429, 429} {
		host := fmt.Sprintf("app%d.example.org", i)
		status, body := ask("/v1/check", host)
		if status != want || !strings.Contains(body, `"name":"1h0m0s"`) {
			t.Errorf("%s: %d %s, want %d", host, status, body, want)
		}
	}
	paths := []string{"/metrics", "/dashboard/", "/", "/v1/check/", "//v1/check",
		"/v1/check/../decide"}
	for _, path := range append(paths, httpapi.Paths()...) {
		if path == "/v1/check" {
			continue
		}
		if status, body := ask(path, "app.example.org"); status != http.StatusMisdirectedRequest {
			t.Errorf("%s: %d %s, want 421", path, status, body)
		}
	}
}

// TestWithoutHost: HTTP/1.0 requests without a host are answered. Health checks of load balancers
// send them, and no browser does.
func TestWithoutHost(t *testing.T) {
	url, _, _ := start(t)
	const misdirected = "421 Misdirected Request"
	for _, tt := range []struct{ head, want string }{
		{"GET /healthz HTTP/1.0\n", "200 OK"},
		{"GET /healthz HTTP/1.0\nHost: elsewhere.example\n", misdirected},
		{"GET /healthz HTTP/1.0\nHost: localhost\n", "200 OK"},
		{"GET /healthz HTTP/1.1\nConnection: close\n", "400 Bad Request"},
		{"GET /healthz HTTP/1.1\nConnection: close\nHost:\n", misdirected},
		{"GET /healthz HTTP/1.1\nConnection: close\nHost: a b\n", "400 Bad Request"},
		{"GET http://elsewhere.example/healthz HTTP/1.0\n", misdirected},
		{"GET http://elsewhere.example/healthz HTTP/1.1\nConnection: close\nHost: localhost\n",
			misdirected},
	} {
		request := strings.ReplaceAll(tt.head+"\n", "\n", "\r\n")
		conn, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprint(conn, request); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		conn.Close()
		if line, _, _ := strings.Cut(string(answer), "\r\n"); err != nil ||
			!strings.Contains(line, tt.want) {
			t.Errorf("%q: %q, %v; want %s", request, line, err, tt.want)
		}
	}
}

func TestHostFlag(t *testing.T) {
	for _, name := range []string{
		"http://limits.example", "limits.example:8080", "*.example", "a b", "limits.example/",
		strings.Repeat("a", 254),
	} {
		var stderr bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		args := []string{"serve", "--addr=127.0.0.1:0", "--host=good", "--host", name}
		if code := run(ctx, args, io.Discard, &stderr); code != exitUsage ||
			!strings.Contains(stderr.String(), "--host") {
			t.Errorf("%q: exit code %d: %s", name, code, &stderr)
		}
		cancel()
	}
}
