package edges

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// An asking proxy has a configuration that asks a limiter before it passes a request on.
type asking struct {
	image, file string
	failed      int  // the status that clients get if the limiter does not answer
	allowlist   bool // whether it sends only the headers of clients that the file names
}

var askingProxies = []asking{
	{nginx, "nginx-service.conf", http.StatusServiceUnavailable, true},
	{nginx, "nginx-auth.conf", http.StatusServiceUnavailable, true},
	{nginx, "ingress-nginx.yaml", http.StatusInternalServerError, false},
	{haproxy, "haproxy.cfg", http.StatusServiceUnavailable, true},
	{caddy, "Caddyfile.service", http.StatusGatewayTimeout, false},
	{caddy, "Caddyfile.fields", http.StatusGatewayTimeout, false},
	{caddy, "Caddyfile.auth", http.StatusGatewayTimeout, false},
}

// text returns the configuration with the addresses of a limiter and an application.
func (a asking) text(t *testing.T, limiter, app string) string {
	t.Helper()
	if a.file == "ingress-nginx.yaml" {
		return ingressNginx(t, limiter, app)
	}
	return strings.NewReplacer("app:8080/limit", limiter+"/limit",
		"forward_auth app:8080", "forward_auth "+limiter,
		"limits:8080", limiter, "app:8080", app).Replace(readConfiguration(t, a.file))
}

// ingressNginx returns what ingress-nginx makes of the objects of ingress-nginx.yaml.
func ingressNginx(t *testing.T, limiter, app string) string {
	t.Helper()
	var ingress struct {
		Metadata struct{ Annotations map[string]string }
	}
	var headers, controller struct{ Data map[string]string }
	objects := yaml.NewDecoder(strings.NewReader(readConfiguration(t, "ingress-nginx.yaml")))
	for _, object := range []any{&ingress, &headers, &controller} {
		if err := objects.Decode(object); err != nil {
			t.Fatal(err)
		}
	}
	const prefix = "nginx.ingress.kubernetes.io/"
	annotations := ingress.Metadata.Annotations
	service := "http://ratelimit.default.svc.cluster.local"
	url := strings.Replace(annotations[prefix+"auth-url"], service, "http://"+limiter, 1)
	if !strings.HasPrefix(url, "http://"+limiter+"/") || len(annotations) != 2 ||
		annotations[prefix+"auth-proxy-set-headers"] != "default/ratelimit-headers" {
		t.Fatalf("annotations %v", annotations)
	}
	var set strings.Builder
	for name, value := range headers.Data {
		fmt.Fprintf(&set, "proxy_set_header %q %q;\n", name, value)
	}
	return `events {}
http {
  ` + controller.Data["http-snippet"] + `
  server {
    listen 80;
    location / {
      auth_request /auth;
      proxy_set_header Host $http_host;
      proxy_connect_timeout 5s;
      proxy_send_timeout 60s;
      proxy_read_timeout 60s;
      proxy_pass http://` + app + `;
    }
    location = /auth {
      internal;
      proxy_pass_request_body off;
      proxy_pass_request_headers on;
      proxy_set_header Content-Length "";
      proxy_set_header X-Forwarded-Proto "";
      proxy_set_header Host ratelimit.default.svc.cluster.local;
      proxy_set_header X-Original-URL $scheme://$http_host$request_uri;
      proxy_set_header X-Original-Method $request_method;
      proxy_set_header X-Sent-From nginx-ingress-controller;
      proxy_set_header X-Real-IP $remote_addr;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Auth-Request-Redirect $request_uri;
      ` + set.String() + `
      proxy_http_version 1.1;
      proxy_pass ` + url + `;
    }
  }
}
`
}

// counting returns an application that counts its requests.
func counting(t *testing.T) (addr string, passed *atomic.Int64) {
	t.Helper()
	passed = new(atomic.Int64)
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		passed.Add(1)
		fmt.Fprint(w, "hello from "+r.URL.Path)
	})), passed
}

// frozen returns the address of a listener that accepts connections and never answers, and how many
// it has accepted.
func frozen(t *testing.T) (addr string, accepted *atomic.Int64) {
	t.Helper()
	accepted = new(atomic.Int64)
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range conns {
			conn.Close()
		}
	})
	return fmt.Sprintf("%s:%d", servers.HostName, listener.Addr().(*net.TCPAddr).Port), accepted
}

// longestUndecided is how long a request may take whose limiter does not answer: the time-outs of
// the configurations are 2 s, and the machine may be busy.
const longestUndecided = 10 * time.Second

// getEach sends requests at once, and checks the status of each and that it comes in time.
func getEach(t *testing.T, url string, n, want int) {
	t.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			began := time.Now()
			res, err := client.Get(url)
			if err != nil {
				t.Error(err)
				return
			}
			res.Body.Close()
			took := time.Since(began)
			if res.StatusCode != want || took > longestUndecided {
				t.Errorf("status %d after %v, want %d", res.StatusCode, took, want)
			}
		})
	}
	wg.Wait()
}

// TestFrozenLimiter: while a limiter accepts connections and never answers, requests get the status
// of the configuration within a few seconds, and none passes; nginx can let them pass instead.
func TestFrozenLimiter(t *testing.T) {
	for _, proxy := range askingProxies {
		t.Run(proxy.file, func(t *testing.T) {
			t.Parallel()
			app, passed := counting(t)
			limiter, accepted := frozen(t)
			p := startText(t, proxy.image, proxy.file, proxy.text(t, limiter, app))
			getEach(t, "http://"+p.IP+"/page", 5, proxy.failed)
			if passed.Load() != 0 || accepted.Load() < 5 {
				t.Errorf("the limiter was asked %d times, and %d requests passed",
					accepted.Load(), passed.Load())
			}
		})
	}
	t.Run("upstream", func(t *testing.T) {
		t.Parallel()
		other, passed := counting(t)
		limiter, accepted := frozen(t)
		p := startWith(t, nginx, "nginx-upstream.conf",
			strings.NewReplacer("limits-1:8080", limiter, "limits-2:8080", other))
		getEach(t, "http://"+p.IP+"/healthz", 5, http.StatusOK)
		if passed.Load() != 5 || accepted.Load() == 0 {
			t.Errorf("the frozen daemon was asked %d times, the other answered %d, want 5",
				accepted.Load(), passed.Load())
		}
	})
	t.Run("a script that fails", func(t *testing.T) {
		t.Parallel()
		app, passed := counting(t)
		text := readConfiguration(t, "haproxy.cfg")
		failing := strings.Replace(text, "core.httpclient()", "core.nothing()", 1)
		p := startText(t, haproxy, "failing", strings.NewReplacer("app:8080", app,
			"limits:8080", app).Replace(failing))
		getEach(t, "http://"+p.IP+"/page", 1, http.StatusServiceUnavailable)
		if text == failing || passed.Load() != 0 {
			t.Errorf("%d requests passed", passed.Load())
		}
	})
	t.Run("open", func(t *testing.T) {
		t.Parallel()
		app, passed := counting(t)
		limiter, accepted := frozen(t)
		text := readConfiguration(t, "nginx-service.conf")
		_, instead, _ := strings.Cut(text, `instead, write "`)
		instead, _, ok := strings.Cut(instead, `".`)
		if !ok || strings.Count(text, "return 503;") != 1 {
			t.Fatalf("no advice to fail open: %s", text)
		}
		text = strings.Replace(text, "return 503;", instead, 1)
		p := startText(t, nginx, "open",
			strings.NewReplacer("limits:8080", limiter, "app:8080", app).Replace(text))
		getEach(t, "http://"+p.IP+"/page", 5, http.StatusOK)
		if passed.Load() != 5 || accepted.Load() < 5 {
			t.Errorf("the limiter was asked %d times, and %d requests passed, want 5",
				accepted.Load(), passed.Load())
		}
	})
}

// TestCredentialsStay: limiters get neither cookies nor credentials of clients, and applications
// get both.
func TestCredentialsStay(t *testing.T) {
	secrets := map[string]string{"Cookie": "session=secret", "Authorization": "Bearer secret",
		"X-Api-Key": "secret"}
	for _, proxy := range askingProxies {
		t.Run(proxy.file, func(t *testing.T) {
			t.Parallel()
			seen := make(chan http.Header, 4)
			record := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				seen <- r.Header.Clone()
			})
			p := startText(t, proxy.image, proxy.file,
				proxy.text(t, serve(t, record), serve(t, record)))
			req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+p.IP+"/page", nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range secrets {
				req.Header.Set(name, value)
			}
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != http.StatusOK || len(seen) != 2 {
				t.Fatalf("status %d, and %d requests", res.StatusCode, len(seen))
			}
			atLimiter, atApp := <-seen, <-seen
			for name, value := range secrets {
				listed := name != "X-Api-Key" || proxy.allowlist
				if got := atLimiter.Get(name); got != "" && listed {
					t.Errorf("the limiter gets %s: %q", name, got)
				}
				if got := atApp.Get(name); got != value {
					t.Errorf("the application gets %s: %q, want %q", name, got, value)
				}
			}
		})
	}
}

// TestIngressNginx: behind the configuration that ingress-nginx makes, limits of paths hold, and no
// header and no Host gets around them.
func TestIngressNginx(t *testing.T) {
	app, passed := counting(t)
	d := daemon.Start(t, daemon.Build(t), "--config="+limitsFile(t, `
limits:
  - {name: login, when: {path: /login*, method: GET}, max: 3/1h}
`), "--addr=0.0.0.0:0", "--host=limits", "--forward-auth=ingress-nginx")
	p := startText(t, nginx, "ingress-nginx.yaml",
		ingressNginx(t, servers.HostName+":"+d.Port(), app))
	const sent = 3
	for i := range 3 + sent {
		status, _, err := raw(p.IP+":80", "GET", "/login")
		want := http.StatusOK
		if i >= 3 {
			want = http.StatusForbidden
		}
		if status != want || err != nil {
			t.Errorf("request %d: %d, %v; want %d", i, status, err, want)
		}
	}
	before := passed.Load()
	for _, set := range forged("/free") {
		got := p.Exec(t, curl("http://127.0.0.1/login", [][]string{set})...)
		if got != "403\n" {
			t.Errorf("%q: %s, want 403", set, got)
		}
	}
	for host, want := range map[string]int{"x#y.example": 500, "x?y.example": 500, `x\free`: 403,
		"a@b": 403, "x%zz": 403, "free.example:80": 403, "[::1]:80": 403} {
		status, _, err := rawHost(p.IP+":80", "GET", "/login", host)
		if status != want || err != nil {
			t.Errorf("Host %q: %d, %v; want %d", host, status, err, want)
		}
	}
	if n := passed.Load() - before; n != 0 {
		t.Errorf("%d requests got around the limit", n)
	}
	const none = `ratelimit_forward_auth_missing_total{ratelimit_entry="path"} 0`
	if _, metrics := d.Get(t, "/metrics"); !strings.Contains(metrics, none) {
		t.Errorf("requests lack a path: %s", metrics)
	}
}

// TestTraefik: a daemon limits what Traefik's forwardAuth sends of a request, which is what
// traefik.yaml lets it send.
func TestTraefik(t *testing.T) {
	var file struct {
		HTTP struct {
			Middlewares map[string]struct {
				ForwardAuth struct {
					Address             string
					AuthRequestHeaders  []string `yaml:"authRequestHeaders"`
					TrustForwardHeader  bool     `yaml:"trustForwardHeader"`
					AuthResponseHeaders []string `yaml:"authResponseHeaders"`
				} `yaml:"forwardAuth"`
			}
			Routers map[string]struct{ Middlewares []string }
		}
	}
	if err := yaml.Unmarshal([]byte(readConfiguration(t, "traefik.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	used := file.HTTP.Routers["app"].Middlewares
	if len(used) != 1 {
		t.Fatalf("%+v", file)
	}
	auth := file.HTTP.Middlewares[used[0]].ForwardAuth
	if auth.Address != "http://limits:8080/v1/check" || auth.TrustForwardHeader ||
		!slices.Equal(auth.AuthRequestHeaders, []string{"X-Tenant"}) {
		t.Fatalf("%+v", auth)
	}
	d := daemon.Start(t, daemon.Build(t), "--config="+limitsFile(t, serviceLimits), "--host=limits",
		"--forward-auth=traefik", "--entry=tenant=X-Tenant", "--trusted-proxy=127.0.0.1/32")
	ask := func(target, from string, sent http.Header) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://127.0.0.1:"+d.Port()+"/v1/check", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "limits:8080"
		for _, name := range auth.AuthRequestHeaders {
			if values := sent.Values(name); len(values) > 0 {
				req.Header[http.CanonicalHeaderKey(name)] = values
			}
		}
		for name, value := range map[string]string{"X-Forwarded-Method": "GET",
			"X-Forwarded-Proto": "https", "X-Forwarded-Host": "app.example.org",
			"X-Forwarded-Uri": target, "X-Forwarded-For": from} {
			req.Header.Set(name, value)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res
	}
	for i := range limit + 3 {
		forgery := http.Header{"X-Forwarded-Uri": {"/free"}, "X-Original-Url": {"https://a/free"},
			"X-Forwarded-For": {fmt.Sprintf("203.0.113.%d", i)}}
		res := ask("/client/page?a=b", "198.51.100.3", forgery)
		want := http.StatusOK
		if i >= limit {
			want = http.StatusTooManyRequests
		}
		if res.StatusCode != want ||
			!strings.HasPrefix(res.Header.Get("RateLimit"), `"clients";r=`) {
			t.Errorf("request %d: %d %v, want %d", i, res.StatusCode, res.Header, want)
		}
	}
	if res := ask("/client/page", "198.51.100.4", nil); res.StatusCode != http.StatusOK {
		t.Errorf("another client: %d", res.StatusCode)
	}
	res := ask("/tenant", "198.51.100.5", http.Header{"X-Tenant": {"acme"}})
	if !strings.HasPrefix(res.Header.Get("RateLimit"), `"tenants";r=49`) {
		t.Errorf("a tenant: %d %v", res.StatusCode, res.Header)
	}
}

func limitsFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
