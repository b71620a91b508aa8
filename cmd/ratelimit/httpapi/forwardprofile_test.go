package httpapi

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// sentBy returns what proxies send to /v1/check of a request for a path, and of which method and
// host, as their sources and the files of deploy/proxies have it.
func sentBy(method, host, path, client string) map[string]http.Header {
	return map[string]http.Header{
		"caddy": {"X-Forwarded-Method": {method}, "X-Forwarded-Uri": {path},
			"X-Forwarded-Host": {host}, "X-Forwarded-Proto": {"https"},
			"X-Forwarded-For": {client}},
		"nginx": {"X-Forwarded-Method": {method}, "X-Forwarded-Uri": {path},
			"X-Forwarded-Host": {host}, "X-Forwarded-For": {client}},
		"traefik": {"X-Forwarded-Method": {method}, "X-Forwarded-Uri": {path},
			"X-Forwarded-Host": {host}, "X-Forwarded-Proto": {"https"},
			"X-Forwarded-Port": {"443"}, "X-Forwarded-For": {client}},
		"haproxy": {"X-Forwarded-Method": {method}, "X-Forwarded-Uri": {path},
			"X-Forwarded-Host": {host}, "X-Forwarded-For": {client}},
		// It appends its own address.
		"envoy": {"X-Forwarded-For": {client + ", 10.0.0.2"}, "X-Envoy-Internal": {"true"}},
		"ingress-nginx": {"X-Original-Url": {"https://" + host + path},
			"X-Original-Method": {method}, "X-Sent-From": {"nginx-ingress-controller"},
			"X-Auth-Request-Redirect": {path}, "X-Real-Ip": {client}, "X-Forwarded-For": {client}},
	}
}

// askedBy returns the request by which a proxy asks, without headers.
func askedBy(proxy, method, host, target string) *http.Request {
	asks := httptest.NewRequest(http.MethodGet, "http://limits:8080/v1/check", nil)
	if proxy == "envoy" {
		asks = httptest.NewRequest(method, "/v1/check"+target, nil)
		asks.Host = host
	}
	asks.RemoteAddr = "10.0.0.2:4711"
	return asks
}

// forgedHeaders are headers that a client sends to look like another request to other proxies.
func forgedHeaders() map[string]http.Header {
	forged := sentBy("OPTIONS", "free.example", "/free", "203.0.113.7")
	forged["others"] = http.Header{"X-Original-Uri": {"/free"}, "X-Rewrite-Url": {"/free"},
		"X-Original-Host": {"free.example"}, "X-Http-Method-Override": {"OPTIONS"},
		"X-Method-Override": {"OPTIONS"}, "X-Forwarded-Path": {"/free"},
		"X-Forwarded-Prefix": {"/free"}, "X-Envoy-Original-Path": {"/free"},
		"Forwarded": {"for=203.0.113.7;host=free.example"}, "True-Client-Ip": {"203.0.113.7"},
		"Cf-Connecting-Ip": {"203.0.113.7"}, "X-Client-Ip": {"203.0.113.7"}}
	return forged
}

// TestForwardProfiles: each proxy is limited by what it says itself, whatever its clients send in
// the headers of every other proxy.
func TestForwardProfiles(t *testing.T) {
	const target = "/login?next=/free"
	for proxy, own := range sentBy("POST", "app.example", target, "198.51.100.3") {
		for other, forged := range forgedHeaders() {
			t.Run(proxy+"/"+other, func(t *testing.T) {
				s := fileScene(t, `
limits:
  - {name: login, when: {path: /login, method: POST, host: app.example}, key: [client], max: 1/1h}
`)
				s.api.proxies = NewForwardAuth(ProfileFlag(proxy), nil,
					[]netip.Prefix{netip.MustParsePrefix("10.0.0.2/32")}, discard)
				for i, want := range []int{200, 429, 429} {
					r := askedBy(proxy, "POST", "app.example", target)
					maps.Copy(r.Header, forged)
					maps.Copy(r.Header, own)
					status, header, body := call(t, s.api, r)
					if status != want || !strings.Contains(body, `"name":"login"`) ||
						(status == 429) != (header.Get("Retry-After") == "3600") {
						t.Errorf("request %d: %d %v %s, want %d", i, status, header, body, want)
					}
				}
				for source, w := range s.api.proxies.warnings.missing {
					if n := w.requests.Load(); n != 0 {
						t.Errorf("%d requests lack %s", n, source)
					}
				}
			})
		}
	}
}

// TestForwardURL: the URL of ingress-nginx, which has the Host as the client has sent it, has the
// path that the back end gets.
func TestForwardURL(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "",
		"https://app.example/login?a=b":    "host=app.example path=/login",
		"http://App.Example.:8080/login":   "host=app.example path=/login",
		"https://app.example/x://y/login":  "host=app.example path=/x://y/login",
		"https:///login":                   "path=/login",
		"https://[2001:db8::1]:8443/login": "host=2001:db8::1 path=/login",
		"https://a@b/login":                "host=a@b path=/login",
		"https://a%zz/login":               "host=a%zz path=/login",
		`https://a\free/login`:             `host=a\free path=/login`,
		"https://app.example:80:81/login":  "host=app.example path=/login",
		"https://App.example.:a:80/login":  "host=app.example path=/login",
		"https://[2001:DB8::1]x/login":     "host=2001:db8::1 path=/login",
		"https://app.example":              "host=app.example path=/",
		"https://app.example?x":            "host=app.example path=/",
		"/login?a=b":                       "path=/login",
		"login":                            "",
		"https://app.example?/login":       "error",
		"https://x?y.example/login":        "error",
		"https://x#y.example/login":        "error",
	} {
		f := NewForwardAuth("ingress-nginx", nil, nil, discard)
		r := httptest.NewRequest(http.MethodGet, CheckPath, nil)
		r.Header.Set("X-Original-URL", text)
		d, err := f.descriptor(r, func(string) bool { return false })
		got := ""
		for _, e := range d {
			if e.Name != "client" {
				got += " " + e.Name + "=" + e.Value
			}
		}
		if err != nil {
			got = " error"
		}
		if strings.TrimSpace(got) != want {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
		s := fileScene(t, "limits: [{name: all, when: {path: /*}, max: 0}]")
		s.api.proxies = f
		status, _, body := call(t, s.api, r)
		switch {
		case want == "error" && (status != 400 || !strings.Contains(body, "X-Original-URL has")):
			t.Errorf("%q: %d %s, want 400", text, status, body)
		case strings.Contains(want, "path=") && status != 429:
			t.Errorf("%q: %d %s, want 429", text, status, body)
		}
	}
}

// TestForwardEnvoy: the request that Envoy sends has the method, the host and, after /v1/check, the
// path of its client, in each spelling; what its client chooses is not read as a request to the
// daemon.
func TestForwardEnvoy(t *testing.T) {
	for target, want := range map[string]string{
		"/login":                 "path=/login",
		"/login?refused=200&a=b": "path=/login",
		"/login?refused=403":     "path=/login",
		"//login":                "path=//login",
		"/%6cogin":               "path=/%6cogin",
		"/v1/decide":             "path=/v1/decide",
		"/../decide":             "path=/../decide",
		"/%2e%2e/%2e%2e/metrics": "path=/%2e%2e/%2e%2e/metrics",
		"/..%2f..%2fdashboard/":  "path=/..%2f..%2fdashboard/",
		"/v1/check/login":        "path=/v1/check/login",
		"/http://free.example/x": "path=/http://free.example/x",
		"/":                      "path=/",
		"?x":                     "path=/",
		"":                       "",
		"%2flogin":               "400",
		"login":                  "421",
		"*":                      "421",
	} {
		s := fileScene(t, "limits: [{name: all, when: {path: /*}, max: 0}]")
		s.api.proxies = NewForwardAuth("envoy", nil, nil, discard)
		r := askedBy("envoy", "post", "App.Example.:8443", target)
		r.Header.Set("Origin", "https://elsewhere.example")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		hosts := NewHosts(nil, "127.0.0.1:8080").Only(s.api, s.api.proxies.IsCheck)
		status, header, body := call(t, hosts, r)
		switch want {
		case "400", "421":
			if fmt.Sprint(status) != want {
				t.Errorf("%q: %d %s, want %s", target, status, body, want)
			}
			continue
		case "":
			n := s.api.proxies.warnings.missing["path"].requests.Load()
			if status != http.StatusOK || n != 1 {
				t.Errorf("without a path: %d %s, counted %d", status, body, n)
			}
		default:
			if status != http.StatusTooManyRequests || !strings.Contains(body, `"name":"all"`) {
				t.Errorf("%q: %d %v %s, want 429", target, status, header, body)
			}
		}
		d, err := s.api.proxies.descriptor(r, func(string) bool { return false })
		got := ""
		for _, e := range d[1:] { // the first is the client
			got += e.Name + "=" + e.Value + " "
		}
		if got != strings.TrimSpace("method=POST host=app.example "+want)+" " || err != nil {
			t.Errorf("%q: %s, %v", target, got, err)
		}
	}
	for _, proxy := range []string{"caddy", "nginx", "ingress-nginx"} {
		s := fileScene(t, "limits: [{name: all, max: 1/1h}]")
		s.api.proxies = NewForwardAuth(ProfileFlag(proxy), nil, nil, discard)
		status, _, body := call(t, s.api, askedBy("envoy", "GET", "a", "/login"))
		if status != http.StatusNotFound {
			t.Errorf("%s: %d %s below /v1/check, want 404", proxy, status, body)
		}
	}
}

// TestForwardTarget: a header that is there twice was written by the client first, and a target
// without a path is that of a request for http://HOST?QUERY.
func TestForwardTarget(t *testing.T) {
	for _, tt := range []struct {
		uris []string
		want string
	}{
		{[]string{"/free", "/login"}, "/login"}, {[]string{"?x=/free"}, "/"}, {[]string{""}, ""},
	} {
		r := httptest.NewRequest(http.MethodGet, CheckPath, nil)
		r.Header["X-Forwarded-Uri"] = tt.uris
		d, err := NewForwardAuth("nginx", nil, nil, discard).descriptor(r,
			func(string) bool { return false })
		if path, _ := d.Value("path"); path != tt.want || err != nil {
			t.Errorf("%q: %q, %v; want %q", tt.uris, path, err, tt.want)
		}
	}
}

// TestForwardMissing: what a proxy does not send is counted if a limit needs it, and logged once a
// minute with the header and the flag, and without an address.
func TestForwardMissing(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"),
		netip.MustParsePrefix("::ffff:10.1.0.0/120")}
	all := http.Header{"X-Forwarded-Uri": {"/"}, "X-Forwarded-Method": {"GET"},
		"X-Forwarded-Host": {"app.example"}, "X-Forwarded-For": {"203.0.113.9"}}
	for _, tt := range []struct {
		name, peer string
		trusted    []netip.Prefix
		drop       string      // the header of all that is not sent
		set        http.Header // in place of those of all
		uses       string      // the entry that a limit looks at
		counted    string      // the source that is counted, or trusted
		says       []string
	}{
		{"all", "10.0.0.2:1", trusted, "", nil, "path method host client", "", nil},
		{"no path", "10.0.0.2:1", trusted, "X-Forwarded-Uri", nil, "path", "path",
			[]string{`"entry":"path"`, `"header":"X-Forwarded-Uri"`, "--forward-auth"}},
		{"an empty path", "10.0.0.2:1", trusted, "", http.Header{"X-Forwarded-Uri": {""}}, "path",
			"path", nil},
		{"no path under another name", "10.0.0.2:1", trusted, "X-Forwarded-Uri", nil, "route",
			"path", nil},
		{"no path under both names", "10.0.0.2:1", trusted, "X-Forwarded-Uri", nil, "route path",
			"path", nil},
		{"a path that no limit needs", "10.0.0.2:1", trusted, "X-Forwarded-Uri", nil, "client", "",
			nil},
		{"no method", "10.0.0.2:1", trusted, "X-Forwarded-Method", nil, "method", "method",
			[]string{`"header":"X-Forwarded-Method"`}},
		{"no host", "10.0.0.2:1", trusted, "X-Forwarded-Host", nil, "host", "host",
			[]string{`"header":"X-Forwarded-Host"`}},
		{"no client", "10.0.0.2:1", trusted, "X-Forwarded-For", nil, "client", "client",
			[]string{`"header":"X-Forwarded-For"`, "--forward-auth"}},
		{"an optional header", "10.0.0.2:1", trusted, "", nil, "tenant", "", nil},
		{"no trusted proxy", "10.0.0.2:1", nil, "", nil, "client", "client",
			[]string{`"header":"X-Forwarded-For"`, "--trusted-proxy"}},
		{"a peer that is no proxy", "127.0.0.1:1", trusted, "", nil, "client", "client",
			[]string{"--trusted-proxy"}},
		{"a socket", "@", trusted, "", nil, "client", "", nil},
		{"a socket without trust", "@", nil, "", nil, "client", "client", nil},
		{"a mapped proxy", "[::ffff:10.1.0.2%eth0]:1", trusted, "", nil, "client", "", nil},
		{"a client in the proxies' network", "10.0.0.2:1", trusted, "",
			http.Header{"X-Forwarded-For": {"10.0.0.77"}}, "client", "trusted",
			[]string{"network of --trusted-proxy", "choose"}},
		{"another one", "10.0.0.2:1", trusted, "",
			http.Header{"X-Forwarded-For": {"10.0.0.1, 10.1.0.77"}}, "client", "trusted", nil},
		{"a client outside behind two", "10.0.0.2:1", trusted, "",
			http.Header{"X-Forwarded-For": {"203.0.113.9, 10.1.0.77"}}, "client", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				f := NewForwardAuth("caddy", []EntryFlag{{"route", "path"}, {"tenant", "X-Tenant"}},
					tt.trusted, slog.New(slog.NewJSONHandler(&log, nil)))
				ask := func() {
					r := httptest.NewRequest(http.MethodGet, CheckPath, nil)
					r.RemoteAddr = tt.peer
					maps.Copy(r.Header, all)
					r.Header.Del(tt.drop)
					maps.Copy(r.Header, tt.set)
					if _, err := f.descriptor(r, func(entry string) bool {
						return strings.Contains(tt.uses, entry)
					}); err != nil {
						t.Fatal(err)
					}
				}
				want := map[string]int64{
					"client": 0, "method": 0, "host": 0, "path": 0, "trusted": 0}
				counts := func() map[string]int64 {
					got := map[string]int64{"trusted": f.warnings.trusted.requests.Load()}
					for source, w := range f.warnings.missing {
						got[source] = w.requests.Load()
					}
					return got
				}
				for range 3 {
					ask()
				}
				time.Sleep(warnInterval)
				ask()
				lines := 0
				if tt.counted != "" {
					want[tt.counted], lines = 4, 2
				}
				if got := counts(); !maps.Equal(got, want) {
					t.Errorf("counted %v, want %v", got, want)
				}
				text := log.String()
				if strings.Count(text, "\n") != lines ||
					lines > 0 && !strings.Contains(text, `"suppressed":2`) ||
					strings.Contains(text, "10.0.0.") || strings.Contains(text, "203.0.113.") {
					t.Errorf("want %d lines without an address: %s", lines, text)
				}
				for _, says := range tt.says {
					if !strings.Contains(text, says) {
						t.Errorf("the log does not have %s: %s", says, text)
					}
				}
			})
		})
	}
}

// TestForwardMissingByLimit: what limits need is in conditions, keys, by and exceptions, and a
// daemon counts it among its metrics.
func TestForwardMissingByLimit(t *testing.T) {
	for limit, needs := range map[string]bool{
		"{name: a, when: {path: /login}, max: 1/1h}":                            true,
		"{name: a, key: [path], max: 1/1h}":                                     true,
		"{name: a, by: {entry: path, /login: 1/1h}, max: 5/1h}":                 true,
		"{name: a, max: 1/1h, except: [{when: {path: /free}, max: unlimited}]}": true,
		"{name: a, key: [tenant], max: 1/1h}":                                   false,
	} {
		s := fileScene(t, "limits: ["+limit+"]")
		status, _, body := call(t, s.api, httptest.NewRequest(http.MethodGet, CheckPath, nil))
		n := s.api.proxies.warnings.missing["path"].requests.Load()
		if status != 200 || (n == 1) != needs {
			t.Errorf("%s: %d %s, counted %d", limit, status, body, n)
		}
	}
}

// TestWideTrustedProxies: the log warns of networks that clients may be in.
func TestWideTrustedProxies(t *testing.T) {
	for prefix, wide := range map[string]bool{
		"10.0.0.0/8": true, "10.0.0.0/23": true, "172.16.0.0/12": true, "192.168.0.0/16": true,
		"100.64.0.0/10": true, "8.0.0.0/5": true, "0.0.0.0/1": true, "fd00::/8": true,
		"fd00:1::/63": true, "fe80::/10": true, "::/1": false, "::ffff:10.0.0.0/104": true,
		"10.0.0.2/32": false, "10.0.0.0/24": false, "::ffff:10.0.0.0/120": false,
		"127.0.0.0/8": false, "fd00:1::/64": false, "104.16.0.0/13": false, "2606:4700::/32": false,
	} {
		var log bytes.Buffer
		trustedProxies{netip.MustParsePrefix(prefix)}.warn(slog.New(slog.NewJSONHandler(&log, nil)))
		if got := log.Len() > 0; got != wide {
			t.Errorf("%s: %s", prefix, &log)
		}
	}
}
