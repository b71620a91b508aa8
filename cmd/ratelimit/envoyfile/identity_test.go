package envoyfile

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

func TestLimitName(t *testing.T) {
	for _, c := range []struct {
		path []string
		want string
	}{
		{[]string{"d", "a_b", "c"}, "d|a_b|c"},
		{[]string{"example.com", "path_/v1/ü x"}, "example.com|path_/v1/%C3%BC%20x"},
		{[]string{"d|a", `"~\`}, "d%7Ca|%22%7E%5C"},
		{[]string{"d", strings.Repeat("v", 62)}, "d|" + strings.Repeat("v", 62)},
		{[]string{"d", strings.Repeat("v", 63)}, "d|" + strings.Repeat("v", 37) +
			"~3ba5a9afe3d9d3ed90b3b2a1"},
	} {
		got := limitName(c.path)
		if strings.Contains(c.want, "~") {
			got, c.want = got[:40], c.want[:40]
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.path, got, c.want)
		}
	}
}

// Names are valid, and those of different paths are different.
func TestLimitNamesAreValidAndDistinct(t *testing.T) {
	paths := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune(`ab|~% "\é.`)), 0, 30, -1), 1, 5)
	rapid.Check(t, func(t *rapid.T) {
		one, other := paths.Draw(t, "one"), paths.Draw(t, "other")
		name := limitName(one)
		limit := driver.Limit{Name: name, Max: 1, Window: time.Second}
		if err := limit.Validate(); err != nil || name == "" && one[0] != "" {
			t.Fatalf("%q has the name %q: %v", one, name, err)
		}
		same := strings.Join(one, "\x00") == strings.Join(other, "\x00")
		if same != (name == limitName(other)) {
			t.Fatalf("%q and %q have the names %q and %q", one, other, name, limitName(other))
		}
	})
}

func TestKeys(t *testing.T) {
	d := read(t, Options{}, `
domain: d
descriptors:
  - key: a
    rate_limit: {unit: day, requests_per_unit: 1}
    descriptors: [{key: b*, rate_limit: {unit: day, requests_per_unit: 1}}]
`)
	for descriptor, want := range map[string]string{
		"a=1":          "1",
		"a=":           "%",
		"a=1/2%":       "1%2F2%25",
		"a=1,b*=2":     "1/2",
		"a=1,bar=2":    "1/2/1/bar",
		"a=1,bar=":     "1/%/1/bar",
		"a=1,b/=1/bar": "1/1%2Fbar/1/b%2F",
	} {
		if _, key, ok := d.Find("d", parse(descriptor)); !ok || key != want {
			t.Errorf("%s: %q, want %q", descriptor, key, want)
		}
	}
	long := strings.Repeat("v", 100_000)
	_, key, ok := d.Find("d", parse("a="+long+"1"))
	_, other, _ := d.Find("d", parse("a="+long+"2"))
	if !ok || len(key) > 1100 || key == other {
		t.Errorf("a long value has a key of %d bytes", len(key))
	}
}

func TestOverride(t *testing.T) {
	d := read(t, Options{}, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, "+
		"requests_per_unit: 1}}]")
	known := parse("a=1")
	if got := d.Override("d", known); len(got) != 1 {
		t.Errorf("a descriptor with a limit becomes %v", got)
	}
	if got := d.Override("other", parse("b=1")); len(got) != 1 {
		t.Errorf("a descriptor of another domain becomes %v", got)
	}
	histories := map[string]bool{}
	for _, descriptor := range []rules.Descriptor{
		parse("b=1"), parse("b=1,c=2"), parse("b=1,c=2,d=3"), parse("b=1/b"), parse("a=1,b=1"),
	} {
		with := d.Override("d", descriptor)
		limit, key, ok := d.Find("d", with)
		if !ok || limit.Name != "d|" || !limit.Rate.Unlimited || histories[key] {
			t.Errorf("%v leads to %v %+v %q", with, ok, limit, key)
		}
		if _, has := with.Value("b"); !has {
			t.Errorf("%v lacks an entry", with)
		}
		histories[key] = true
	}
}

func BenchmarkFind(b *testing.B) {
	d := read(b, Options{}, shop)
	descriptor := parse("user=42,path=/health")
	b.ReportAllocs()
	for b.Loop() {
		if _, _, ok := d.Find("shop", descriptor); !ok {
			b.Fatal("no limit")
		}
	}
}
