package config

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

func load(t *testing.T, text string) *Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Source{Path: path}.Load()
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return c
}

// fields are those of a limit in a file.
type fields map[string]string

func (f fields) with(changes fields) fields {
	f = maps.Clone(f)
	maps.Copy(f, changes)
	return f
}

func (f fields) text() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if f[name] != "" {
			parts = append(parts, name+": "+f[name])
		}
	}
	return "limits:\n  - {" + strings.Join(parts, ", ") + "}\n"
}

// maxOf is a max of each algorithm.
var maxOf = map[string]string{"month": "100", "week": "100", "quarter": "100",
	"in-flight": "100", "block": "24h"}

func base(name string) fields {
	most, ok := maxOf[name]
	if !ok {
		most = "100/1h"
	}
	return fields{"name": "units", "when": `{tenant: "*"}`, "key": "[tenant]", "max": most,
		"algorithm": name}
}

// changes of a limit, for each of which a row of the table is tried.
func changesOf(name string) map[string]fields {
	all := map[string]fields{
		"nothing":          {},
		"name":             {"name": "others"},
		"when":             {"when": "{tenant: acme, path: /v1*}"},
		"no when":          {"when": ""},
		"key":              {"key": "[user]"},
		"more keys":        {"key": "[tenant, user]"},
		"no key":           {"key": ""},
		"order of keys":    {"key": "[user, tenant]"},
		"holds":            {"holds": "1m"},
		"longer holds":     {"holds": "1h"},
		"shorter holds":    {"holds": "30s"},
		"by":               {"by": "{entry: plan, pro: " + maxOf[name] + "}"},
		"except":           {"except": "[{when: {tenant: acme}, max: 70}]"},
		"warn":             {"warn": "80%"},
		"shadow":           {"mode": "shadow"},
		"charge":           {"charge": "always"},
		"on_failure":       {"on_failure": "open"},
		"max":              {"max": "70"},
		"a greater max":    {"max": "200"},
		"nothing admitted": {"max": "0"},
	}
	switch name {
	case "week", "month", "quarter", "in-flight":
		all["by"]["by"] = "{entry: plan, pro: 70}"
	case "block":
		all["by"]["by"], all["except"]["except"] = "{entry: plan, pro: 2h}",
			"[{when: {tenant: acme}, max: 2h}]"
		all["max"], all["a greater max"] = fields{"max": "2h"}, fields{"max": "48h"}
		for _, unknown := range []string{"holds", "longer holds",
			"shorter holds", "warn", "charge", "nothing admitted"} {
			delete(all, unknown)
		}
	default:
		all["by"]["by"], all["except"]["except"] = "{entry: plan, pro: 70/1h}",
			"[{when: {tenant: acme}, max: 70/1h}]"
		all["max"], all["a greater max"] = fields{"max": "70/1h"}, fields{"max": "200/1h"}
		all["a shorter window"] = fields{"max": "100/30m"}
		all["a longer window"] = fields{"max": "100/2h"}
	}
	switch name {
	case "week":
		all["an earlier start"], all["a later start"] = fields{"starts": "sunday"},
			fields{"starts": "wednesday"}
	case "month", "quarter":
		all["an earlier start"], all["a later start"] = fields{"starts": "20"},
			fields{"starts": "10"}
	}
	if algorithms.IsFixed(name) {
		all["an offset"], all["another offset"] = fields{"offset": "-20m"}, fields{"offset": "40m"}
	}
	if name == "in-flight" {
		delete(all, "shadow")
		delete(all, "charge")
	}
	for _, other := range algorithms.OfService() {
		if other != name {
			all["algorithm "+other] = fields{"algorithm": other, "max": base(other)["max"]}
		}
	}
	return all
}

var descriptor = rules.Descriptor{{Name: "tenant", Value: "acme"}, {Name: "user", Value: "bob"},
	{Name: "plan", Value: "pro"}, {Name: "path", Value: "/v1/chat"}}

// used uses some of a limit under a configuration.
func used(t *testing.T, store ratelimit.Store, c *Config) {
	t.Helper()
	var matches []rules.Match
	matches = c.Set.Match(matches, "", descriptor)
	if b, ok := matches[0].Algorithm.(algorithm.Block); ok {
		l, err := ratelimit.New(store, b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Force(t.Context(), matches[0].Key,
			algorithm.BlockFor(time.Hour)); err != nil {
			t.Fatal(err)
		}
		return
	}
	options := decision.Options{}
	if matches[0].Limit.Algorithm == algorithms.InFlight {
		options.Hold = new(time.Duration)
	}
	d := decision.New(store)
	if err := d.Use(c.Set); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		got, err := d.Decide(t.Context(),
			[]decision.Request{{Descriptor: descriptor, N: 1}}, options)
		if err != nil || !got.Allowed {
			t.Fatalf("%+v, %v", got, err)
		}
	}
}

// isAtZero reports whether nothing is used under a configuration.
func isAtZero(t *testing.T, store ratelimit.Store, c *Config) bool {
	t.Helper()
	d := decision.New(store)
	if err := d.Use(c.Set); err != nil {
		t.Fatal(err)
	}
	got, err := d.Decide(context.Background(),
		[]decision.Request{{Descriptor: descriptor, N: 1}}, decision.Options{Peek: true})
	if err != nil {
		t.Fatal(err)
	}
	s := got.Parts[0].Statuses[0]
	if !s.Asked {
		return false
	}
	if s.Limit.Algorithm == algorithms.Block {
		return s.Allowed
	}
	return s.Result.Remaining == s.Result.Limit.Max
}

// agesOf returns times at which a change comes, after the begin of the year 2000: a Saturday.
func agesOf(name string) []time.Duration {
	ages := []time.Duration{time.Second, 20 * time.Minute, 45*time.Minute + 50*time.Second,
		time.Hour - time.Second}
	last := map[string]time.Duration{"week": 2 * day, "month": 31 * day, "quarter": 91 * day}[name]
	if last > 0 {
		ages = append(ages, last-time.Second)
	}
	return ages
}

const day = 24 * time.Hour

// TestRestarts: a limit is warned of if, and only if, the memory store counts from zero under it,
// at whatever time the change comes.
func TestRestarts(t *testing.T) {
	for _, name := range algorithms.OfService() {
		for _, holds := range []string{"", "2m"} {
			if name == "block" && holds != "" {
				continue
			}
			old := base(name).with(fields{"holds": holds})
			for change, to := range changesOf(name) {
				next := old.with(to)
				if next["algorithm"] == "block" {
					next["holds"] = ""
				}
				before, after := load(t, old.text()), load(t, next.text())
				zero := false
				for _, age := range agesOf(name) {
					synctest.Test(t, func(t *testing.T) {
						store, err := memorystore.New(nil)
						if err != nil {
							t.Fatal(err)
						}
						defer store.Close()
						time.Sleep(age)
						used(t, store, before)
						zero = isAtZero(t, store, after) || zero
					})
				}
				warnings := after.Restarts(before)
				if zero != (len(warnings) == 1) {
					t.Errorf("%s with holds %q, another %s: counts from zero: %t, warnings: %v",
						name, holds, change, zero, warnings)
				}
			}
		}
	}
}

// TestRestartsOfEnvoy is TestRestarts for files of envoyproxy/ratelimit.
func TestRestartsOfEnvoy(t *testing.T) {
	const limit = ", rate_limit: {unit: hour, requests_per_unit: "
	const old = "domain: d\ndescriptors:\n  - {key: a" + limit + "100}}\n" +
		"  - {key: a, value: b_c" + limit + "100}}\n" +
		"  - {key: p, value: x*" + limit + "100}, descriptors: [{key: q" + limit + "100}}]}\n"
	of := func(key, value string) rules.Descriptor {
		return rules.Descriptor{{Name: key, Value: value}}
	}
	nested := append(of("p", "x1"), of("q", "z")...)
	requests := []rules.Descriptor{of("a", "y"), of("a", "b_c"), of("a", "z"), of("p", "x1"),
		of("p", "y"), nested}
	replace := func(from, to string) string {
		if !strings.Contains(old, from) {
			t.Fatal(from)
		}
		return strings.Replace(old, from, to, 1)
	}
	for change, next := range map[string]string{
		"nothing":         old,
		"one more":        old + "  - {key: other" + limit + "5}}\n",
		"a value more":    old + "  - {key: a, value: y" + limit + "5}}\n",
		"a value less":    replace("  - {key: a, value: b_c"+limit+"100}}\n", ""),
		"another split":   replace("{key: a, value: b_c", "{key: a_b, value: c"),
		"a pattern":       replace("{key: a, value: b_c", "{key: a, value: '*'"),
		"a wider pattern": replace("value: x*", "value: '*'"),
		"an earlier one": replace("descriptors:\n",
			"descriptors:\n  - {key: p, value: '*1'"+limit+"9}}\n"),
		"a value for it": replace("  - {key: p",
			"  - {key: p, value: x1"+limit+"9}}\n  - {key: p"),
		"units":             replace("100}}\n", "70}}\n"),
		"unit":              replace("unit: hour", "unit: day"),
		"a shorter unit":    replace("unit: hour", "unit: minute"),
		"shadow":            replace("{key: a,", "{key: a, shadow_mode: true,"),
		"a name":            replace("unit: hour", "name: n, unit: hour"),
		"order":             "domain: d\ndescriptors:\n" + reversed(old),
		"the one that left": replace("  - {key: a"+limit+"100}}\n", ""),
	} {
		before, after := load(t, old), load(t, next)
		zero := false
		for _, request := range requests {
			synctest.Test(t, func(t *testing.T) {
				store, err := memorystore.New(nil)
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				ask := func(c *Config, peek bool) *decision.Status {
					d := decision.New(store)
					if err := d.Use(c.Set); err != nil {
						t.Fatal(err)
					}
					got, err := d.Decide(t.Context(), []decision.Request{
						{Domain: "d", Descriptor: request, N: 1}}, decision.Options{Peek: peek})
					if err != nil {
						t.Fatal(err)
					}
					if len(got.Parts[0].Statuses) == 0 {
						return nil
					}
					return &got.Parts[0].Statuses[0]
				}
				first, second := ask(before, false), ask(after, true)
				if first != nil && second != nil &&
					second.Result.Remaining == second.Result.Limit.Max {
					zero = true
				}
			})
		}
		warnings := after.Restarts(before)
		if zero != (len(warnings) > 0) {
			t.Errorf("%s: counts from zero: %t, warnings: %v", change, zero, warnings)
		}
	}
	for change, next := range map[string]string{
		"domain": replace("domain: d", "domain: e"),
		"key":    replace("{key: a,", "{key: b,"),
		"limits": base("log").text(),
	} {
		if got := load(t, next).Restarts(load(t, old)); len(got) == 0 {
			t.Errorf("another %s: no warning", change)
		}
	}
}

// TestStoreRestarts: another server, prefix, tag or table is another store, and other parameters
// are not.
func TestStoreRestarts(t *testing.T) {
	const limits = "\nlimits: [{name: a, max: 1/1h}]\n"
	old := load(t, "store: redis://u:p@a:6379/0?prefix=x&tag=y"+limits)
	for store, want := range map[string]int{
		"redis://u:p@a:6379/0?prefix=x&tag=y":            0,
		"redis://v:q@a:6379/0?tag=y&prefix=x&timeout=1s": 0,
		"redis://u:p@b:6379/0?prefix=x&tag=y":            1,
		"redis://u:p@a:6379/1?prefix=x&tag=y":            1,
		"redis://u:p@a:6379/0?prefix=z&tag=y":            1,
		"redis://u:p@a:6379/0?prefix=x":                  1,
		"redis://u:p@a:6379/0?prefix=x&tag=y&table=t":    1,
		"memory": 1,
	} {
		if got := load(t, "store: "+store+limits).StoreRestarts(old); len(got) != want {
			t.Errorf("%s: %v, want %d warnings", store, got, want)
		}
	}
}

// TestSecretRestarts: another file of the secret of keys, one more and one less is a warning at its
// place.
func TestSecretRestarts(t *testing.T) {
	const limits = "limits: [{name: a, max: 1/1h}]\n"
	for _, tt := range []struct{ before, after, want string }{
		{"", "", ""},
		{"key_secret_file: a\n", "key_secret_file: a\n", ""},
		{"key_secret_file: a\n", "key_secret_file: b\n", ":1:18: key_secret_file is another one"},
		{"", "key_secret_file: b\n", ":1:18: key_secret_file is another one"},
		{"key_secret_file: a\n", "", ": key_secret_file is another one"},
	} {
		got := load(t, tt.after+limits).StoreRestarts(load(t, tt.before+limits))
		if tt.want == "" && got != nil ||
			tt.want != "" && (len(got) != 1 || !strings.Contains(got.Error(), tt.want)) {
			t.Errorf("%q after %q: %v, want %q", tt.after, tt.before, got, tt.want)
		}
	}
}

// reversed returns the descriptors of a file in the reverse order.
func reversed(file string) string {
	lines := strings.SplitAfter(file, "\n")[2:]
	slices.Reverse(lines)
	return strings.Join(lines, "")
}
