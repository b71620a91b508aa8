package keyspace

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// named is an algorithm of which only the names matter.
type named struct{ limit, algorithm string }

func (n named) Name() string          { return n.algorithm }
func (n named) Limit() driver.Limit   { return driver.PerMinute(n.limit, 1) }
func (n named) Validate() error       { return nil }
func (n named) Script() driver.Script { return driver.Script{} }
func (n named) Step([]byte, int64, driver.Demand) ([]byte, time.Duration, driver.Result) {
	return nil, 0, driver.Result{}
}

func demand(key, limit, algorithm string) driver.Demand {
	return driver.Demand{Key: key, Algorithm: named{limit, algorithm}, N: 1}
}

func newKeyspace(t testing.TB, prefix string, tag func(string) string) Keyspace {
	t.Helper()
	k, err := New(prefix, tag)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKey(t *testing.T) {
	tenant := func(key string) string {
		tag, _, _ := strings.Cut(key, ":user:")
		return strings.TrimPrefix(tag, "anyone")
	}
	for _, tt := range []struct {
		what, key, want string
		tag             func(string) string
	}{
		{what: "plain", key: "user:42", want: "rl:{=user:42}:1m0s:log3"},
		{what: "braces and percent", key: "a}b{c%", want: "rl:{=a%7Db%7Bc%25}:1m0s:log3"},
		{what: "control bytes", key: "a\x00\n\x7f", want: "rl:{=a%00%0A%7F}:1m0s:log3"},
		{what: "other bytes stay", key: "ü \xff=#", want: "rl:{=ü \xff=#}:1m0s:log3"},
		{what: "longest literal", key: strings.Repeat("x", 128), want: "rl:{=" +
			strings.Repeat("x", 128) + "}:1m0s:log3"},
		{what: "long", key: strings.Repeat("x", 129),
			want: "rl:{#DsnrM-dFELzdHy6lUgboLyFknFwr7L8rQz60dbNMAb0}:1m0s:log3"},
		{what: "long as written", key: strings.Repeat("%", 43),
			want: "rl:{#b33J27227yrNdgKh0g2ntwopQfklbRB3KLj5jo2XfcY}:1m0s:log3"},
		{what: "tag", key: "tenant:42:user:7", tag: tenant,
			want: "rl:{=tenant:42}=tenant:42:user:7:1m0s:log3"},
		{what: "tag is the key", key: "tenant:42", tag: tenant, want: "rl:{=tenant:42}:1m0s:log3"},
		{what: "empty tag", key: "anyone", tag: tenant, want: "rl:{=anyone}:1m0s:log3"},
		{what: "tag and long key", key: "t:user:" + strings.Repeat("x", 129), tag: tenant,
			want: "rl:{=t}#AQOJR7Hp_li8_43jgQ4xM9Pudtt87ABd-DCARBt3Rwg:1m0s:log3"},
	} {
		if got := newKeyspace(t, "rl:",
			tt.tag).Key(demand(tt.key, "1m0s", "log3")); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
	k := newKeyspace(t, "rl:", nil)
	if got, want := k.Key(demand("k", "a:b",
		"c:{d}%")), "rl:{=k}:a%3Ab:c%3A%7Bd%7D%25"; got != want {
		t.Errorf("names: %q, want %q", got, want)
	}
	if got := k.Spare(""); got == k.Key(demand("=", "", "")) || Slot(got) != Slot("=") {
		t.Errorf("Spare = %q", got)
	}
}

func TestPrefix(t *testing.T) {
	for _, prefix := range []string{"{", "}", "a{b}"} {
		if _, err := New(prefix, nil); err == nil {
			t.Errorf("prefix %q was accepted", prefix)
		}
	}
}

func TestKeyAllocates(t *testing.T) {
	k := newKeyspace(t, "rl:", func(key string) string { return key[:2] })
	for what, d := range map[string]driver.Demand{
		"plain":   demand("user:42", "1m0s", "log3"),
		"longest": demand("{"+strings.Repeat("x", 80), "1m0s", "log3"),
	} {
		if n := testing.AllocsPerRun(100, func() { _ = k.Key(d) }); n > 1 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

func TestScrub(t *testing.T) {
	k := newKeyspace(t, "rl:", nil)
	cause := errors.New("ERR unknown command 'evalsha', with args beginning with: '0123' '1' " +
		"'rl:{=user:42}:1m0s:log3' ''")
	if got := k.Scrub(cause).Error(); strings.Contains(got, "42") ||
		!strings.HasPrefix(got, "ERR unknown command 'evalsha'") {
		t.Errorf("%q", got)
	}
	password := errors.New("ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' " +
		"'default' 'hunter2' ")
	if got := Scrub(password).Error(); strings.Contains(got, "hunter2") ||
		!strings.HasPrefix(got, "ERR unknown command 'HELLO'") {
		t.Errorf("%q", got)
	}
	if cut := errors.New("… '0123' '1' 'rl:{=us"); strings.Contains(k.Scrub(cut).Error(), "us") {
		t.Error("the beginning of a key was left")
	}
	if plain := errors.New("LOADING"); k.Scrub(plain) != plain {
		t.Error("an error without a key was replaced")
	}
}

// FuzzKey: a stored key can be taken apart into its parts, hashes aside, so no two demands share
// one, and its slot is that of the tag alone.
func FuzzKey(f *testing.F) {
	f.Add("user:42", "", "1m0s", "log3")
	f.Add("tenant:42:user:7", "tenant:42", "burst", "log3")
	f.Add("a}b", "{", "}:{", ":")
	f.Add("=", "#", "", "")
	f.Add("\x00\xff%7D", "%", "%3A", "::")
	f.Add(strings.Repeat("}", 43), strings.Repeat("x", 200), "l", "a")
	f.Fuzz(func(t *testing.T, key, tag, limit, algorithm string) {
		if key == "" {
			t.Skip("CheckTake refuses it")
		}
		stored := newKeyspace(t, "rl:",
			func(string) string { return tag }).Key(demand(key, limit, algorithm))
		if tag == "" {
			tag = key
		}
		rest, ok := strings.CutPrefix(stored, "rl:{")
		if !ok {
			t.Fatalf("%q: no prefix", stored)
		}
		gotTag, rest, _ := strings.Cut(rest, "}")
		if !isPart(gotTag, tag) {
			t.Fatalf("%q: tag is not %q", stored, tag)
		}
		if Slot(stored) != Slot(gotTag) {
			t.Fatalf("%q: slot %d is not the tag's", stored, Slot(stored))
		}
		rest, gotAlgorithm := cutLast(t, rest)
		gotKey, gotLimit := cutLast(t, rest)
		if unescape(t, gotLimit) != limit || unescape(t, gotAlgorithm) != algorithm {
			t.Fatalf("%q: names are not %q and %q", stored, limit, algorithm)
		}
		if same := tag == key; same != (gotKey == "") || !same && !isPart(gotKey, key) {
			t.Fatalf("%q: key is not %q", stored, key)
		}
	})
}

// isPart reports whether part is the written form of s.
func isPart(part, s string) bool {
	switch {
	case part == "" || len(part) > 1+maxLiteral:
		return false
	case part[0] == hashed:
		sum := sha256.Sum256([]byte(s))
		return part[1:] == base64.RawURLEncoding.EncodeToString(sum[:]) && !isLiteral(s)
	}
	got, err := url.PathUnescape(part[1:])
	return part[0] == literal && err == nil && got == s
}

func cutLast(t *testing.T, s string) (before, after string) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		t.Fatalf("%q has no colon", s)
	}
	return s[:i], s[i+1:]
}

func unescape(t *testing.T, s string) string {
	got, err := url.PathUnescape(s)
	if err != nil {
		t.Fatal(err)
	}
	return got
}
