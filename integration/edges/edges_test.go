package edges

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/clientip"
	"github.com/truewindow/ratelimit/httplimit"
	"github.com/truewindow/ratelimit/integration/servers"
)

const (
	nginx   = "nginx:1"
	caddy   = "caddy:2"
	haproxy = "haproxy:3.0"

	limit = 5
)

// serve serves h on all addresses of this machine and returns the address for containers.
func serve(t *testing.T, h http.Handler) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: listener, Config: &http.Server{Handler: h}}
	s.Start()
	t.Cleanup(s.Close)
	return fmt.Sprintf("%s:%d", servers.HostName, listener.Addr().(*net.TCPAddr).Port)
}

// configurations has the configurations of proxies.
var configurations = filepath.Join(servers.Module, "deploy/proxies")

// lua stands before the script in the configuration of HAProxy.
const lua = "\n# haproxy.lua\n"

// readConfiguration returns a file of configurations, that of HAProxy with its script.
func readConfiguration(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(configurations, file))
	if err != nil {
		t.Fatal(err)
	}
	if file == "haproxy.cfg" {
		return string(text) + lua + readConfiguration(t, "haproxy.lua")
	}
	return string(text)
}

// start starts a proxy with a file of configurations, in which it replaces app:8080 by app,
// and returns when the proxy accepts connections.
func start(t *testing.T, image, file, app string) *servers.Other {
	t.Helper()
	return startWith(t, image, file, strings.NewReplacer("app:8080", app))
}

// startWith is start with other replacements.
func startWith(t *testing.T, image, file string, names *strings.Replacer) *servers.Other {
	t.Helper()
	return startText(t, image, file, names.Replace(readConfiguration(t, file)))
}

// startText is start with a configuration itself, which has a name.
func startText(t *testing.T, image, name, config string) *servers.Other {
	t.Helper()
	path := map[string]string{nginx: "/etc/nginx/nginx.conf", caddy: "/etc/caddy/Caddyfile",
		haproxy: "/usr/local/etc/haproxy/haproxy.cfg"}[image]
	files := map[string]string{path: config}
	if image == haproxy { // two files in one text
		files[path], files["/usr/local/etc/haproxy/haproxy.lua"], _ = strings.Cut(config, lua)
	}
	proxy := servers.StartOther(t, image, files)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := servers.Poll(ctx, func() (bool, error) {
		conn, err := net.DialTimeout("tcp", proxy.IP+":80", time.Second)
		if err == nil {
			conn.Close()
		}
		return err == nil, nil
	}); err != nil {
		t.Fatalf("%s with %s does not accept connections: %v", image, name, err)
	}
	return proxy
}

// startClient starts a container that has curl and its own address. The image of nginx has curl.
func startClient(t *testing.T) *servers.Other {
	t.Helper()
	return servers.StartOther(t, nginx, nil, "sleep", "600")
}

func newLimiter(t *testing.T) *ratelimit.Limiter {
	t.Helper()
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerHour("hour", limit)))
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

// keys counts the requests by key.
type keys struct {
	mu    sync.Mutex
	count map[string]int
}

func (k *keys) of(key httplimit.KeyFunc) httplimit.KeyFunc {
	return func(r *http.Request) (string, error) {
		s, err := key(r)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.count[s]++
		return s, err
	}
}

// spoofs are headers with which a client pretends to be another one.
func spoofs(other string) [][]string {
	return [][]string{
		nil,
		{"X-Forwarded-For: " + other},
		{"X-Forwarded-For: 203.0.113.1, " + other, "X-Real-IP: " + other},
		{"X-Forwarded-For: 203.0.113.2", "X-Forwarded-For: " + other},
		{"X-Forwarded-For: unknown, , nonsense,", "True-Client-IP: " + other},
		{"X-Forwarded-For;"},
		{"Forwarded: for=" + other, "Forwarded: for=203.0.113.3"},
		{`Forwarded: for="` + other + `, x="`, `X-Forwarded-For: "`},
		{"X-Forwarded-For: ::ffff:127.0.0.1, [::1]:80", "CF-Connecting-IP: " + other},
		{"Connection: X-Forwarded-For, X-Real-IP, Forwarded", "X-Forwarded-For: " + other},
	}
}

// TestSpoofs: behind proxies, two clients are told apart, the limit is exact for each, and no
// header that they send changes their identity.
func TestSpoofs(t *testing.T) {
	ann, bob := startClient(t), startClient(t)
	mux := http.NewServeMux()
	app := serve(t, mux)
	direct := start(t, nginx, "nginx.conf", app)
	one := start(t, caddy, "Caddyfile", app)
	front := start(t, caddy, "Caddyfile", direct.IP+":80")
	trusted := func(proxies ...*servers.Other) (prefixes []netip.Prefix) {
		for _, p := range proxies {
			prefixes = append(prefixes, netip.PrefixFrom(netip.MustParseAddr(p.IP), 32))
		}
		return prefixes
	}
	for i, tt := range []struct {
		name   string
		proxy  *servers.Other
		source clientip.Source
	}{
		{"nginx, X-Forwarded-For", direct, clientip.XForwardedFor(trusted(direct)...)},
		{"nginx, X-Forwarded-For by place", direct, clientip.XForwardedForAt(1)},
		{"nginx, Forwarded", direct, clientip.Forwarded(trusted(direct)...)},
		{"nginx, X-Real-IP", direct, clientip.Header("X-Real-IP", trusted(direct)...)},
		{"Caddy", one, clientip.XForwardedFor(trusted(one)...)},
		{"Caddy by place", one, clientip.XForwardedForAt(1)},
		{"Caddy, then nginx", front, clientip.XForwardedFor(trusted(front, direct)...)},
		{"Caddy, then nginx, by place", front, clientip.XForwardedForAt(2)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seen := &keys{count: make(map[string]int)}
			ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			path := fmt.Sprintf("/%d/", i)
			mux.Handle(path, httplimit.Handler(newLimiter(t), seen.of(tt.source.Key), ok))
			url := "http://" + tt.proxy.IP + path
			sent := 0
			for _, pair := range [][2]*servers.Other{{ann, bob}, {bob, ann}} {
				client, other := pair[0], pair[1]
				got := client.Exec(t, curl(url, spoofs(other.IP))...)
				codes := strings.Fields(got)
				sent = len(spoofs(other.IP))
				admitted := strings.Count(got, "200")
				refused := strings.Count(got, "429")
				if len(codes) != sent || admitted != limit || refused != sent-limit {
					t.Errorf("got %d answers, %d with 200 and %d with 429; want %d, %d and %d: %v",
						len(codes), admitted, refused, sent, limit, sent-limit, codes)
				}
			}
			seen.mu.Lock()
			defer seen.mu.Unlock()
			if len(seen.count) != 2 || seen.count[ann.IP] != sent || seen.count[bob.IP] != sent {
				t.Errorf("got requests by key %v, want %d each of %s and %s",
					seen.count, sent, ann.IP, bob.IP)
			}
		})
	}
}

// curl returns a command that sends a request with each set of headers and prints the statuses.
func curl(url string, headers [][]string) []string {
	cmd := []string{"curl"}
	for i, set := range headers {
		if i > 0 {
			cmd = append(cmd, "--next")
		}
		cmd = append(cmd, "-s", "-m", "10", "-o", "/dev/null", "-w", `%{http_code}\n`)
		for _, h := range set {
			cmd = append(cmd, "-H", h)
		}
		cmd = append(cmd, url)
	}
	return cmd
}

// TestForwardAuth: a proxy that asks an authorization endpoint passes admitted requests on, and
// returns status and Retry-After of a refusal to the client.
func TestForwardAuth(t *testing.T) {
	client := startClient(t)
	for _, tt := range []struct {
		image, file string
		source      func(proxy netip.Prefix) clientip.Source
		body        bool // whether the client gets the body of the refusal
	}{
		{caddy, "Caddyfile.auth", func(proxy netip.Prefix) clientip.Source {
			return clientip.XForwardedFor(proxy)
		}, true},
		{nginx, "nginx-auth.conf", func(proxy netip.Prefix) clientip.Source {
			return clientip.Header("X-Real-IP", proxy)
		}, false},
	} {
		t.Run(tt.file, func(t *testing.T) {
			var passed atomic.Int64
			mux := http.NewServeMux()
			mux.HandleFunc("/upstream/", func(w http.ResponseWriter, r *http.Request) {
				passed.Add(1)
				fmt.Fprint(w, "hello from "+r.URL.Path)
			})
			proxy := start(t, tt.image, tt.file, serve(t, mux))
			source := tt.source(netip.PrefixFrom(netip.MustParseAddr(proxy.IP), 32))
			admitted := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusNoContent)
			})
			mux.Handle("/limit", httplimit.Handler(newLimiter(t), source.Key, admitted))

			url := "http://" + proxy.IP + "/page"
			for i := range limit {
				got := client.Exec(t, "curl", "-s", "-m", "10", "-i", url,
					"-H", fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i),
					"-H", fmt.Sprintf("X-Real-IP: 203.0.113.%d", i))
				if !strings.HasPrefix(got, "HTTP/1.1 200") ||
					!strings.Contains(got, "hello from /upstream/page") {
					t.Errorf("request %d: want status 200 from the upstream, got: %s", i, got)
				}
			}
			for range 3 {
				got := client.Exec(t, "curl", "-s", "-m", "10", "-i", url)
				header, body, _ := strings.Cut(got, "\r\n\r\n")
				header = strings.ToLower(header)
				if !strings.HasPrefix(header, "http/1.1 429") {
					t.Errorf("want status 429, got: %s", got)
				}
				wait := ""
				if _, after, ok := strings.Cut(header, "retry-after: "); ok {
					wait, _, _ = strings.Cut(after, "\r\n")
				}
				seconds, err := strconv.Atoi(wait)
				if err != nil || seconds < 3500 || seconds > 3600 {
					t.Errorf("got Retry-After %q, want 3500 to 3600: %s", wait, got)
				}
				if !strings.Contains(header, "cache-control: no-store") {
					t.Errorf("want Cache-Control no-store, got: %s", got)
				}
				if tt.body && !strings.Contains(body, `"violated-policies":["hour"]`) {
					t.Errorf("want problem details, got: %s", got)
				}
			}
			if got := passed.Load(); got != limit {
				t.Errorf("%d requests were passed on, want %d", got, limit)
			}
		})
	}
}
