package paths_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/paths"
)

func TestOf(t *testing.T) {
	for target, want := range map[string]string{
		"/v1/chat": "/v1/chat", "/v1/chat?q=/other": "/v1/chat",
		"/x/../v1/%63hat/?": "/x/../v1/%63hat/",
		"/":                 "/", "//": "//", "": "", "?q": "", "*": "*", "no path": "/no path",
		"a:b":  "/a:b",
		"../x": "/../x", "/v1/chat\x7f": "/v1/chat\x7f", "/a://b": "/a://b",
		"http://example.com/v1/chat": "/v1/chat", "http://example.com?q": "/",
		"HTTPS://[::1]:80/a//b?c": "/a//b", "http://": "/", `http://h\x/y`: `//h\x/y`,
		"http://h#/y": "//h#/y",
	} {
		if got := paths.Of(target); got != want {
			t.Errorf("%q: %q, want %q", target, got, want)
		}
	}
}

func TestRead(t *testing.T) {
	for _, path := range []string{
		"", "/", "/v1/chat", "/a/", "/.well-known/...", "/a.b/..c", "*", "v1/%63hat",
		"/a:b@c,d=e+f", "/ü",
	} {
		if r := paths.Read(path); r != nil {
			t.Errorf("%q has the readings %+v", path, r)
		}
	}
	for path, want := range map[string]paths.Readings{
		"/npm/@scope%2fname": {Key: "/npm/@scope/name", Strict: 2,
			List: []string{"/npm/@scope%2fname", "/npm/@scope/name", "/npm/@scope%2Fname"}},
		"/a%20b":     {Key: "/a b", Strict: 1, List: []string{"/a b", "/a%20b"}},
		"/%C3%bC":    {Key: "/ü", Strict: 1, List: []string{"/ü", "/%C3%bC"}},
		"/a/..":      {Key: "/", Strict: 2, List: []string{"/a/..", "/"}},
		"/a/b/.":     {Key: "/a/b/", Strict: 3, List: []string{"/a/b/.", "/a/b/", "/a/b"}},
		"/100%":      {Key: "/100%", Strict: 1, List: []string{"/100%"}},
		"/100%zz%41": {Key: "/100%zzA", Strict: 2, List: []string{"/100%zz%41", "/100%zzA"}},
		"/%2541":     {Key: "/A", Strict: 3, List: []string{"/%2541", "/%41", "/A"}},
		"/%25252541": {Key: "/A", Strict: 5,
			List: []string{"/%25252541", "/%252541", "/%2541", "/%41", "/A"}},
		"/a?b=//c/../%41": {Key: "/a", Strict: 1, List: []string{"/a", "/a?b=//c/../%41"}},
		"/a#b":            {Key: "/a", Strict: 2, List: []string{"/a#b", "/a"}},
		"/a%23b":          {Key: "/a#b", Strict: 3, List: []string{"/a%23b", "/a#b", "/a"}},
		"/a;b/c":          {Key: "/a/c", Strict: 3, List: []string{"/a;b/c", "/a/c", "/a"}},
		"/a%0a":           {Key: "/a", Strict: 2, List: []string{"/a\n", "/a", "/a%0a"}},
	} {
		r := paths.Read(path)
		if r == nil || !reflect.DeepEqual(*r, want) {
			t.Errorf("%q: %+v, want %+v", path, r, want)
		}
	}
}

// TestKey: all spellings of a path have one key.
func TestKey(t *testing.T) {
	for _, path := range []string{"/v1//chat", "/v1/x/../chat", "/%76%31/chat", "/v1%2fchat",
		`/v1\chat`, "/v1;a/chat;b=c", "/../v1/./chat", "/v1/%252e/chat", "/v1/chat#x",
		"/v1/%2563hat", "/v1/%25%36%33hat", "//v1%252F%2E%2e%5cv1/chat", "/v1/chat%250A"} {
		if r := paths.Read(path); r == nil || r.Key != "/v1/chat" {
			t.Errorf("%q: %+v", path, r)
		}
	}
}

// TestBounds: a path cannot cost more than some readings, and says that it has more.
func TestBounds(t *testing.T) {
	for _, path := range []string{
		"/" + strings.Repeat("a%252f..;x//%5c..%3f", 400), "/" + strings.Repeat("%25252525", 7000),
		"/" + strings.Repeat("a", 64<<10) + "%2f", `/a%2f..%2f..;x//b\..%255c%252f..%3f//a;%23//..`,
	} {
		r := paths.Read(path)
		size := 0
		for _, s := range r.List {
			size += len(s)
		}
		if !r.Open || len(r.List) > 64 || size > 32<<10+len(path) {
			t.Errorf("%.40q: %d readings of %d bytes, open: %v", path, len(r.List), size, r.Open)
		}
	}
}
