package paths_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/paths"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

const spelledLimits = `
limits:
  - {name: api, when: {path: /api/*}, max: 3/1h}
  - {name: login, when: {path: /login}, max: 3/1h}
  - name: most
    max: 3/1h
    except:
      - {when: {path: /free/*}, max: unlimited}
`

func readLimits(t testing.TB) *rules.Set {
	file := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(file, []byte(spelledLimits), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := rules.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return f.Set
}

// A spelled path is a path as clients send it, with the limits that are found for it.
type spelled struct {
	testing.TB
	target string
	rates  map[string]rules.Rate
}

func newSpelled(t testing.TB, set *rules.Set, target string) spelled {
	s := spelled{t, target, make(map[string]rules.Rate)}
	d := rules.Descriptor{{Name: "path", Value: paths.Of(target)}}
	for _, m := range set.Match(nil, "", d) {
		s.rates[m.Limit.Name] = m.Rate
	}
	return s
}

// check: no application, behind any proxy, has a handler for the path whose limit does not apply,
// and none that is not for an exception which applies.
func (s spelled) check() {
	for _, proxy := range proxiesInFront {
		passed := proxy.do(s.target)
		if passed == "" {
			continue
		}
		for _, app := range applications {
			found := app.do(passed)
			handler := handlerOf(found)
			_, api := s.rates["api"]
			_, login := s.rates["login"]
			switch {
			case found == "":
			case handler == "api" && !api, handler == "login" && !login,
				handler != "free" && s.rates["most"].Unlimited:
				s.Fatalf("%q: %s behind %s finds %s by %q, and these limits apply: %v", s.target,
					app.name, proxy.name, handler, found, s.rates)
			}
		}
	}
}

// handlerOf returns which handler an application has for a path.
func handlerOf(path string) string {
	switch {
	case strings.HasPrefix(path, "/api/"):
		return "api"
	case path == "/login":
		return "login"
	case strings.HasPrefix(path+"/", "/free/"): // a final slash is not looked at
		return "free"
	}
	return "none"
}

// spellings are what clients can write in paths.
var spellings = []string{"/", "//", "/./", "/../", "..", ".", "%2e%2e", "%2E", "%2f", "%2F..%2f",
	"%5c", `\`, `\..\`, "%252f", "%252e%252e%252f", "%25", "%zz", "%", ";", ";a=b", "..;/", "#",
	"?", "%23", "%3f", "%3B", "%00", "%0a", "%20", "%c3%bc", "ü", "x", "host", "api", "/api/",
	"%61pi", "ap%69", "login", "/login", "%6cogin", "l%256fgin", "free", "/free/", "%66ree",
	"/free/..%2f"}

// TestSpellings: whatever applications make of a path, they have no handler without its limit.
func TestSpellings(t *testing.T) {
	set := readLimits(t)
	for _, target := range []string{
		"/api/..%2fx", "/api/../login", "/x/..%2fapi/", "/free/..%2fapi/", "/free/%2e%2e/login",
		"/free//../../api/", "/free/..;/api/", `/free\..\login`, "/free/%252e%252e/api/",
		"//free/api/", "//login", "/login#x", "/login%3fx", "/%6Cogin", "/api%2f", "/.%2fapi/",
		"http://free.example/api/", "http://free.example/free/..%2flogin", "/login%00.png",
		"/free%2f..%2flogin", "/free/x%5c..%5c..%5clogin", "/login/x/..", "/x/../api/.",
		"/login;/x", "/api/;/../../free/x", "/login%0a", "/%6Cogin%250A",
	} {
		s := newSpelled(t, set, target)
		s.check()
		if len(s.rates) == 1 && s.rates["most"].Unlimited {
			t.Errorf("%q is excepted", target)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var b strings.Builder
		b.WriteString([]string{"/", "/", "/api/", "/free/", "http://h"}[random.IntN(5)])
		for range random.IntN(7) {
			b.WriteString(spellings[random.IntN(len(spellings))])
		}
		newSpelled(t, set, b.String()).check()
	}
}

// FuzzSpellings is TestSpellings for targets of the fuzzer.
func FuzzSpellings(f *testing.F) {
	for _, s := range spellings {
		f.Add("/free/" + s + "/api/")
	}
	set := readLimits(f)
	f.Fuzz(func(t *testing.T, target string) { newSpelled(t, set, target).check() })
}

// TestPlainPaths: what people send has the limits of its path, and no others.
func TestPlainPaths(t *testing.T) {
	set := readLimits(t)
	for target, want := range map[string]string{
		"/":                     "map[most:3/1h]",
		"/api/":                 "map[api:3/1h most:3/1h]",
		"/free/a":               "map[most:unlimited]",
		"/free/a%20b/%C3%BC.js": "map[most:unlimited]",
		"/free/@scope%2fname":   "map[most:unlimited]",
		"/free/a//b":            "map[most:unlimited]",
		"/free/a;v=1?q=/../api": "map[most:unlimited]",
		"/free/.well-known/...": "map[most:unlimited]",
		"/projects/api%2Fx":     "map[most:3/1h]",
		"/login/":               "map[most:3/1h]",
	} {
		s := newSpelled(t, set, target)
		rates := make(map[string]string)
		for name, rate := range s.rates {
			rates[name] = "3/1h"
			if rate.Unlimited {
				rates[name] = "unlimited"
			}
		}
		if got := fmt.Sprint(rates); got != want {
			t.Errorf("%q: %s, want %s", target, got, want)
		}
	}
}
