package caddylimit

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/truewindow/ratelimit/httplimit/problem"
)

// TestTwoLimits: two limits are decided as one, by different keys, and a refusal by one charges
// nothing to the other.
func TestTwoLimits(t *testing.T) {
	s := newServer(t)
	s.load(`
limits {
	limit user 2/1h {
		key {http.request.header.X-User}
	}
	limit address 3/1h
}
respond hello`)
	if a := s.get("/", "X-User: ann"); a.StatusCode != 200 || a.text != "hello" ||
		a.Header.Get("RateLimit") != `"user";r=1;t=3600, "address";r=2;t=3600` {
		t.Errorf("%d %s %v", a.StatusCode, a.text, a.Header)
	}
	s.want([]int{200, 429, 429}, "X-User: ann")
	s.want([]int{200, 429}, "X-User: bob")
	a := s.get("/", "X-User: eve")
	var p problem.Problem
	if err := json.Unmarshal([]byte(a.text), &p); err != nil || a.StatusCode != 429 ||
		a.Header.Get("Content-Type") != problem.ContentType ||
		strings.Join(p.ViolatedPolicies, " ") != "address" ||
		a.Header.Get("Retry-After") != "3600" {
		t.Errorf("%d %s %v %v", a.StatusCode, a.text, a.Header, err)
	}
	s.want([]int{400}) // no user
}

// TestKeys: what the key of a request is, and which requests have none.
func TestKeys(t *testing.T) {
	const request = "{http.request.header.A}"
	type fields = []string
	for _, tt := range []struct {
		name   string
		key    string
		first  fields // of a request that is admitted
		second fields
		status int // of the second
	}{
		{"same", "key " + request, fields{"A: a"}, fields{"A: a"}, 429},
		{"other", "key " + request, fields{"A: a"}, fields{"A: b"}, 200},
		{"empty", "key " + request, fields{"A: a"}, nil, 400},
		{"unknown", "key " + request + "{http.request.headr.A}", nil, nil, 400},
		{"text", "key x-" + request, fields{"A: a"}, fields{"A: a"}, 429},
		{"constant", "key all", fields{"A: a"}, fields{"A: b"}, 429},
		{"parts", "key " + request + " {header.B}", fields{"A: a", "B: b/c"},
			fields{"A: a/b", "B: c"}, 200},
		{"an empty part", "key " + request + " {header.B}", fields{"A: a", "B: b"},
			fields{"A: a"}, 400},
		{"client", "", fields{"X-Forwarded-For: 192.0.2.1"}, fields{"X-Forwarded-For: 192.0.2.1"},
			429},
		{"other client", "", fields{"X-Forwarded-For: 192.0.2.1"},
			fields{"X-Forwarded-For: 192.0.2.2"}, 200},
		{"client as written", "", fields{"X-Forwarded-For: 192.0.2.1"},
			fields{"X-Forwarded-For: 192.0.2.7, 192.0.2.1"}, 429},
		{"network", "", fields{"X-Forwarded-For: 2001:db8::1"},
			fields{"X-Forwarded-For: 2001:db8::2"}, 429},
		{"other network", "key {client_ip}", fields{"X-Forwarded-For: 2001:db8::1"},
			fields{"X-Forwarded-For: 2001:db8:0:1::1"}, 200},
		{"network as a part", "key {client_ip} a", fields{"X-Forwarded-For: 2001:db8::1"},
			fields{"X-Forwarded-For: 2001:db8::2"}, 429},
		{"peer", "key {remote_host}", fields{"X-Forwarded-For: 192.0.2.1"},
			fields{"X-Forwarded-For: 192.0.2.2"}, 429},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t)
			s.load("limits {\nlimit a 1/1h {\n"+tt.key+"\n}\n}\nrespond hello",
				"servers {\ntrusted_proxies static 127.0.0.1\ntrusted_proxies_strict\n}")
			first := 200
			if tt.name == "unknown" {
				first = 400
			}
			s.want([]int{first}, tt.first...)
			s.want([]int{tt.status}, tt.second...)
		})
	}
}

// TestUntrusted: without trusted_proxies a client cannot choose its address.
func TestUntrusted(t *testing.T) {
	s := newServer(t)
	s.load("limits {\nlimit a 1/1h\n}")
	s.want([]int{200}, "X-Forwarded-For: 192.0.2.1")
	s.want([]int{429}, "X-Forwarded-For: 192.0.2.2")
}

// TestUnits: requests cost units, also by placeholders. Those of no units are not limited.
func TestUnits(t *testing.T) {
	s := newServer(t)
	s.load(`
map {path} {cost} {
	/free 0
	/dear 4
	/odd  odd
	/huge 11
	default 1
}
limits {
	limit sum 10/1h {
		units {cost}
	}
	limit twos 20/1h {
		units 2
	}
}`)
	for _, c := range []struct {
		path   string
		status int
	}{
		{"/dear", 200}, {"/odd", 400}, {"/huge", 422}, {"/dear", 200}, {"/dear", 429}, {"/", 200},
		{"/", 200}, {"/", 429}, {"/free", 200},
	} {
		if a := s.get(c.path); a.StatusCode != c.status {
			t.Errorf("%s: got %d %s, want %d", c.path, a.StatusCode, a.text, c.status)
		}
	}
}

// TestErrorRoutes: with handle_errors, the error routes of the site answer, and have placeholders.
// The fields and Retry-After are set.
func TestErrorRoutes(t *testing.T) {
	s := newServer(t)
	s.load(`
limits {
	limit burst 1/1h
	limit day 1/1d
	limit user 9/1h {
		key {header.X-User}
	}
	handle_errors
}
respond hello
handle_errors 400 429 {
	respond "{http.limits.reason} {http.limits.names} {http.limits.retry_after} {err.status_code}"
}`)
	s.want([]int{200}, "X-User: ann")
	a := s.get("/", "X-User: ann")
	if a.StatusCode != 429 || a.text != "exceeded burst,day 86400 429" ||
		a.Header.Get("Retry-After") != "86400" || a.Header.Get("RateLimit") == "" ||
		a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %s %v", a.StatusCode, a.text, a.Header)
	}
	if a := s.get("/"); a.StatusCode != 400 || a.text != "unattributed   400" {
		t.Errorf("%d %s", a.StatusCode, a.text)
	}
}

// TestOriginalRequest: handlers behind the limits change the request that placeholders read.
func TestOriginalRequest(t *testing.T) {
	s := newServer(t)
	s.load(`
route {
	limits {
		limit a 1/1h
	}
	method POST
	respond {method}
}`)
	if a := s.get("/"); a.text != http.MethodPost {
		t.Errorf("the method is %s", a.text)
	}
}

// pauses is a handler that waits until it gets something to return.
type pauses struct{ returns chan error }

var paused = make(chan *pauses, 1)

func init() { caddy.RegisterModule(pauses{}) }

func (pauses) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_pauses",
		New: func() caddy.Module { return new(pauses) }}
}

func (pauses) ServeHTTP(_ http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	if r.URL.Path == "/" {
		return nil
	}
	p := &pauses{make(chan error)}
	paused <- p
	return <-p.returns
}

// TestInFlightOverReload: a request that runs counts as one in flight under the next configuration,
// until it ends.
func TestInFlightOverReload(t *testing.T) {
	s := newServer(t)
	const site = `
limits {
	limit calls 1 {
		algorithm in-flight
	}
	limit hour %/1h
}
respond hello`
	load := func(hour string) {
		config := string(s.adapt(strings.Replace(site, "%", hour, 1)))
		config = strings.Replace(config, `{"body":"hello","handler":"static_response"}`,
			`{"handler":"test_pauses"}`, 1)
		if err := caddy.Load([]byte(config), true); err != nil {
			t.Fatal(err)
		}
	}
	load("2")
	ended := make(chan answer)
	go func() { ended <- s.get("/long") }()
	running := <-paused
	s.want([]int{429})
	reloaded := make(chan struct{})
	go func() { load("3"); close(reloaded) }() // Caddy may wait for the request
	for s.get("/").Header.Get("RateLimit-Policy") == "" {
		time.Sleep(time.Millisecond)
	}
	s.want([]int{429})
	running.returns <- nil
	<-reloaded
	if a := <-ended; a.StatusCode != 200 {
		t.Errorf("the request ended with %d", a.StatusCode)
	}
	s.want([]int{200, 200, 429})
}
