package edges

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

const serviceLimits = `
limits:
  - {name: clients, when: {path: /client*}, key: [client], max: 5/1h}
  - {name: tenants, when: {tenant: "*", path: /tenant*}, key: [tenant], max: 50/1h}
  - {name: chat, when: {path: /chat*}, key: [], max: 50/1h}
`

// A protected service is an application behind a proxy that asks "ratelimit serve" before it
// forwards a request.
type protected struct {
	proxy  *servers.Other
	fields bool // whether answers of the application have the fields of RateLimit
	url    string
	passed atomic.Int64 // requests that the application got
}

// protect starts the proxy with a file of configurations, and the service with serviceLimits.
func protect(t *testing.T, image, file string) *protected {
	t.Helper()
	p := new(protected)
	app := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.passed.Add(1)
		if r.URL.Path == "/teapot" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprint(w, "hello from "+r.URL.Path)
	}))
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	p.proxy = startWith(t, image, file, strings.NewReplacer("app:8080", app,
		"limits:8080", fmt.Sprintf("%s:%d", servers.HostName, port)))
	daemon.Start(t, daemon.Build(t), "--config="+limitsFile(t, serviceLimits),
		fmt.Sprintf("--addr=0.0.0.0:%d", port), "--host=limits", "--entry=tenant=X-Tenant",
		"--trusted-proxy="+p.proxy.IP+"/32")
	p.url = "http://" + p.proxy.IP
	return p
}

// TestService: behind nginx, Caddy and HAProxy, the service admits exactly its limits of requests
// that come at the same time, by header and by path, and clients are told what remains.
func TestService(t *testing.T) {
	for file, image := range map[string]string{
		"nginx-service.conf": nginx, "Caddyfile.service": caddy, "Caddyfile.fields": caddy,
		"haproxy.cfg": haproxy,
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			p := protect(t, image, file)
			p.fields = file != "Caddyfile.service"
			t.Run("by header", func(t *testing.T) { p.storm(t, "/tenant", "acme", "tenants") })
			t.Run("by path", func(t *testing.T) { p.storm(t, "/chat/more", "", "chat") })
			t.Run("by client", p.clients)
			t.Run("spellings", p.spellings)
			t.Run("not limited", p.unlimited)
		})
	}
}

func (p *protected) get(t *testing.T, path, tenant string) (*http.Response, string) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+path, nil)
	if err != nil {
		t.Error(err)
		return nil, ""
	}
	req.Host = "app.example.org"
	if tenant != "" {
		req.Header.Set("X-Tenant", tenant)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return nil, ""
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return res, string(body)
}

var client = &http.Client{Timeout: 30 * time.Second,
	Transport: &http.Transport{DisableKeepAlives: true}}

// storm sends 200 requests from 20 clients at once, of which 50 are admitted.
func (p *protected) storm(t *testing.T, path, tenant, limit string) {
	const clients, each, max = 20, 10, 50
	before := p.passed.Load()
	var admitted, refused atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range each {
				res, body := p.get(t, path, tenant)
				if res == nil {
					return
				}
				switch res.StatusCode {
				case http.StatusOK:
					admitted.Add(1)
					if body != "hello from "+path {
						t.Errorf("got %q", body)
					}
				case http.StatusTooManyRequests:
					refused.Add(1)
				default:
					t.Errorf("%d %s", res.StatusCode, body)
				}
				p.checkFields(t, res, limit)
			}
		})
	}
	wg.Wait()
	if a, r := admitted.Load(), refused.Load(); a != max || r != clients*each-max ||
		p.passed.Load()-before != max {
		t.Errorf("%d requests were admitted and %d refused, %d reached the application, want %d",
			a, r, p.passed.Load()-before, max)
	}
}

// checkFields checks that an answer has the fields of RateLimit, and a refusal the time to wait.
func (p *protected) checkFields(t *testing.T, res *http.Response, limit string) {
	t.Helper()
	h := res.Header
	refused := res.StatusCode == http.StatusTooManyRequests
	if (p.fields || refused) && (!strings.HasPrefix(h.Get("RateLimit"), `"`+limit+`";r=`) ||
		!strings.HasPrefix(h.Get("RateLimit-Policy"), `"`+limit+`";q=`)) {
		t.Errorf("%d with the fields %v, want those of %s", res.StatusCode, h, limit)
	}
	var seconds int
	n, _ := fmt.Sscan(h.Get("Retry-After"), &seconds)
	if refused != (n == 1) || refused && (seconds < 3000 || seconds > 3600) {
		t.Errorf("%d with Retry-After %q", res.StatusCode, h.Get("Retry-After"))
	}
	if refused && h.Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control of a refusal is %q", h.Get("Cache-Control"))
	}
}

// clients: each of two clients gets exactly its limit, whatever headers it sends.
func (p *protected) clients(t *testing.T) {
	ann, bob := startClient(t), startClient(t)
	for _, pair := range [][2]*servers.Other{{ann, bob}, {bob, ann}} {
		headers := spoofs(pair[1].IP)
		headers = append(headers, forged("/free")...)
		got := pair[0].Exec(t, curl(p.url+"/client", headers)...)
		admitted, refused := strings.Count(got, "200"), strings.Count(got, "429")
		if admitted != limit || refused != len(headers)-limit {
			t.Errorf("%d requests of %d were admitted and %d refused, want %d",
				admitted, len(headers), refused, limit)
		}
	}
}

// forged are headers with which a client pretends to have made another request.
func forged(path string) [][]string {
	return [][]string{
		{"X-Forwarded-Uri: " + path},
		{"X-Forwarded-Uri: " + path, "X-Forwarded-Uri: " + path + "2"},
		{"X-Forwarded-Uri;"},
		{"X_Forwarded_Uri: " + path, "x-forwarded-uri: " + path},
		{"X-Forwarded-Method: OPTIONS", "X-Forwarded-Host: other.example"},
		{"X-Original-URI: " + path, "X-Rewrite-URL: " + path, "X-Original-URL: " + path},
		{"Connection: X-Forwarded-Uri, X-Forwarded-For, X-Forwarded-Method"},
		{"Connection: close, X-Forwarded-For", "X-Forwarded-For: 203.0.113.7"},
	}
}

// invalid are targets that a proxy itself refuses with 400.
var invalid = map[string][]string{
	nginx:   {"/chat%00", "/chat%zz", "/chat%"},
	caddy:   {"/chat%zz", "/chat%"},
	haproxy: {"/chat#free", "/chat\x80", "http://other.example/chat"}, // another host than Host
}

// spellings are targets by which an application may find /chat.
var spellings = []string{
	"/chat", "/chat/", "//chat", "/x/../chat", "/./chat", "/%63hat", "/chat?x=%zz",
	"/chat?/free", "/chat;x", "/chat%00", "/chat%zz", "/chat%ff", "/chat#free", "/chat%23",
	"/chat\\..\\free", "http://other.example/chat", "/%2e/chat", "/x/%2e%2e/chat", "/chat%2f",
	"/%2fchat", "/chat/..%2ffree", "/free/..%2fchat", "/free%2f..%2fchat",
	"/free/%2e%2e%2fchat", "/free/..;/chat", "/free;/../chat", `/free\..\chat`,
	"/free%5c..%5cchat", "/%2563hat", "/free/%252e%252e/chat", "//free/chat",
	"/free/..%252fchat",
	"/chat\x80", "/chat|", `/chat"`, "/chat%", "/chat[", "/chat^`{}",
}

// spellings: no spelling of a path that is used up gets through to the application.
func (p *protected) spellings(t *testing.T) {
	for _, target := range spellings {
		for _, method := range []string{"GET", "OPTIONS"} {
			before := p.passed.Load()
			status, limits, err := raw(p.proxy.IP+":80", method, target)
			if err != nil {
				t.Errorf("%s %q: %v", method, target, err)
			}
			switch {
			case p.passed.Load() != before:
				t.Errorf("%s %q: %d, and %d requests reached the application",
					method, target, status, p.passed.Load()-before)
			case status == http.StatusBadRequest && slices.Contains(invalid[p.proxy.Image], target):
			case status != http.StatusTooManyRequests || !strings.HasPrefix(limits, `"chat";r=0`):
				t.Errorf("%s %q: %d by %s, want 429 by chat", method, target, status, limits)
			}
		}
	}
}

// raw sends a request with a target that Go's client would change, and returns the status and the
// field RateLimit of the answer.
func raw(addr, method, target string) (status int, limits string, err error) {
	return rawHost(addr, method, target, "app.example")
}

// rawHost is raw with a Host.
func rawHost(addr, method, target, host string) (status int, limits string, err error) {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return 0, "", err
	}
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n"+
		"Content-Length: 0\r\n\r\n", method, target, host); err != nil {
		return 0, "", err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	return res.StatusCode, res.Header.Get("RateLimit"), nil
}

// unlimited: what no limit matches, and what the application itself forbids, comes through as it
// is.
func (p *protected) unlimited(t *testing.T) {
	for path, want := range map[string]int{"/free": 200, "/teapot": 403} {
		res, body := p.get(t, path, "")
		if res == nil || res.StatusCode != want || body != "hello from "+path ||
			res.Header.Get("RateLimit") != "" || res.Header.Get("Retry-After") != "" {
			t.Errorf("%s: %+v %q, want %d", path, res, body, want)
		}
	}
}
