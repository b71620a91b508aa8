package httpapi

import (
	"net/http"
	"testing"
)

func TestHosts(t *testing.T) {
	served := NewHosts([]HostFlag{"rate-limit", "a.b.example"}, "Limits.example:8080")
	handler := served.Only(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
	}), func(path string) bool { return path == "/json" })
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost:8080": true, "localhost.": true, "localhost.:80": true,
		"app.localhost:3000": true,
		"127.0.0.1":          true, "127.0.0.1:8080": true, "10.1.2.3:80": true, "[::1]": true,
		"[::1]:8080": true, "[2001:db8::1]:1": true,
		"limits.example": true, "limits.example:8080": true, "LIMITS.example.:1": true,
		"rate-limit:80": true, "a.b.example": true,

		"": false, ".": false, ":8080": false, "elsewhere.example": false,
		"elsewhere.example:8080":      false,
		"localhost.elsewhere.example": false, "elsewherelocalhost": false,
		"127.0.0.1.elsewhere.example": false,
		"b.example":                   false, "x.a.b.example": false,
		"rate-limit.elsewhere.example": false, "localhost..": false,
		"::1": false, "[::1": false, "[localhost]": false, "[127.0.0.1]": false, "127.1": false,
		"0x7f000001":      false,
		"localhost:80:80": false, "elsewhere.example@localhost": false,
		"localhost, elsewhere.example": false,
	} {
		r := request(http.MethodGet, "/healthz", "")
		r.Host = host
		if want {
			if status, _, _ := call(t, handler, r); status != http.StatusOK {
				t.Errorf("%q: status %d", host, status)
			}
		} else {
			checkProblem(t, handler, r, http.StatusMisdirectedRequest)
		}
	}
	r := request(http.MethodGet, "/json", "")
	r.Host = "elsewhere.example"
	if status, _, _ := call(t, handler, r); status != http.StatusOK {
		t.Errorf("a path that is exempt: status %d", status)
	}
	for _, addr := range []string{":8080", "0.0.0.0:8080", "[::]:8080", "127.0.0.1:8080",
		"no address"} {
		if names := NewHosts(nil, addr); len(names) != 0 {
			t.Errorf("%q: %v", addr, names)
		}
	}
}
