package backend_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/driver"
)

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]struct {
		scheme, user, password string
		hosts                  []string
		path, shown            string
	}{
		"memory":             {scheme: "memory", shown: "memory"},
		"memory:":            {scheme: "memory", shown: "memory"},
		"MEMORY:?a=1":        {scheme: "memory", shown: "memory"},
		"memory?a=1":         {scheme: "memory", shown: "memory"},
		"file:///var/x y":    {scheme: "file", path: "/var/x y", shown: "file:/var/x%20y"},
		"file:x.db?a=1":      {scheme: "file", path: "x.db", shown: "file:x.db"},
		"redis://h":          {scheme: "redis", hosts: []string{"h"}, shown: "redis://h"},
		"redis://h:1/2?a=%3": {},
		"redis://:p%40%2F@h:1/2?a=b": {
			scheme: "redis", password: "p@/", hosts: []string{"h:1"}, path: "/2",
			shown: "redis://h:1/2",
		},
		"redis+cluster://u:p+%3F:q@a:1,b,[::1]:2,[fe80::1%25eth0]": {
			scheme: "redis+cluster", user: "u", password: "p+?:q",
			hosts: []string{"a:1", "b", "[::1]:2", "[fe80::1%eth0]"},
			shown: "redis+cluster://a:1,b,[::1]:2,[fe80::1%eth0]",
		},
		"redis://p@h":     {scheme: "redis", user: "p", hosts: []string{"h"}, shown: "redis://h"},
		"":                {},
		"://h":            {},
		"1redis://h":      {},
		"redis://u:p@@h":  {},
		"redis://u:/p@h":  {},
		"redis://u:?p@h":  {},
		"redis://u:#p@h":  {},
		"redis://u:%zz@h": {},
		"redis://h:":      {},
		"redis://h:0":     {},
		"redis://h:65536": {},
		"redis://h:p":     {},
		"redis://a,,b":    {},
		"redis://::1":     {},
		"redis://[h]":     {},
		"redis://[::1":    {},
		"redis://h/%zz":   {},
		"redis://h/\n":    {},
		"redis://h?a":     {},
		"redis://h?=a":    {},
		"redis://h?a/b=c": {},
	} {
		u, err := backend.ParseURL(raw)
		if want.scheme == "" {
			if !errors.Is(err, driver.ErrInvalid) || u != nil {
				t.Errorf("%q: %v, %v; want ErrInvalid", raw, u, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", raw, err)
			continue
		}
		if u.Scheme != want.scheme || u.Username != want.user || u.Password() != want.password ||
			!slices.Equal(u.Hosts, want.hosts) || u.Path != want.path || u.String() != want.shown {
			t.Errorf("%q: %q %q %q %q %q %q", raw,
				u.Scheme, u.Username, u.Password(), u.Hosts, u.Path, u)
		}
	}
}

func TestParams(t *testing.T) {
	for query, want := range map[string]string{ // part of Check's error
		"":                       "",
		"n=3&d=5ms&s=a%26b%3Dc&": "",
		"n=x":                    `parameter "n": it is not a whole number of at least 2`,
		"n=1":                    `parameter "n": it is not a whole number of at least 2`,
		"d=5":                    `parameter "d": it is not a duration above zero`,
		"d=0s":                   `parameter "d": it is not a duration above zero`,
		"d=-1s":                  `parameter "d": it is not a duration above zero`,
		"s=a&s=a":                `parameter "s": it is given twice`,
		"colour=red&taste=sweet": `parameter "colour" is unknown; ` +
			`parameter "taste" is unknown`,
		"any-password=pass&word=b":     "a parameter is unknown",
		"s=no&n=many&d=marked-no&e=no": `parameter "e" is unknown`,
	} {
		u, err := backend.ParseURL("test:?" + query)
		if err != nil {
			t.Fatal(err)
		}
		u.Param("any-password")
		n, okN := u.Int("n", 2)
		d, okD := u.Duration("d")
		s, okS := u.Param("s")
		err = u.Check()
		switch {
		case want == "":
			if all := query != ""; err != nil || okN != all || okD != all || okS != all ||
				all && (n != 3 || d != 5*time.Millisecond || s != "a&b=c") {
				t.Errorf("%s: %d %t, %v %t, %q %t, %v", query, n, okN, d, okD, s, okS, err)
			}
		case !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v", query, err)
		case strings.Contains(err.Error(), "marked"), strings.Contains(err.Error(), `"word"`):
			t.Errorf("%s: a value is shown: %v", query, err)
		}
	}
}

// FuzzParseURL: the password is neither in an error nor in a URL that is printed.
func FuzzParseURL(f *testing.F) {
	for _, scheme := range []string{"redis://", "rediss+sentinel://", "memory:", "://", ":", ""} {
		f.Add(scheme+"user:", "", "", "localhost:6379/0", "")
		f.Add(scheme+":", "12/", "", "localhost", "a=b")
		f.Add(scheme+"user:", "12?", "#", "localhost?addr=other:1&read-timeout=x", "&")
		f.Add(scheme+"user:", "%zz", "%", "localhost/first", "&a=%zz")
		f.Add(scheme+"user:", "12:34/", "[::1", "local host:port", "&password=c")
	}
	const password = "hunter2"
	f.Fuzz(func(t *testing.T, before, more, evenMore, after, end string) {
		if strings.Contains(before+more+evenMore+after+end, password) ||
			!strings.Contains(before, ":") || strings.ContainsAny(end, "@#") {
			t.Skip("no password, or it is in another part too")
		}
		for _, raw := range []string{
			before + more + password + evenMore + "@" + after,
			"redis://localhost?sentinel-password=" + password + end,
			"redis://localhost?sentinel-password=a&" + password + "=b" + end,
		} {
			u, err := backend.ParseURL(raw)
			if err != nil {
				if u != nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err),
					password) {
					t.Fatalf("%v, %#v", u, err)
				}
				continue
			}
			printed := fmt.Sprintf("%v %+v %#v %v %+v %#v %v", u, u, u, *u, *u, *u, u.Check())
			if strings.Contains(printed, password) {
				t.Fatal(printed)
			}
		}
	})
}
