package envoyfile

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// shop has a descriptor of each kind.
const shop = `---
domain: shop
descriptors:
  - key: plan
    value: free
    rate_limit:
      replaces:
        - name: by_route
        - name: nobody
      unit: minute
      requests_per_unit: 4
  - key: from
    value: gateway
    descriptors:
      - key: to
        value: cart
        rate_limit: {name: by_route, unit: Hour, requests_per_unit: 20}
      - key: to
        value: search
        rate_limit: {name: by_route, unit: DAY, requests_per_unit: 30}
        shadow_mode: true
        metadata: {owner: {team: search, since: 2024}, tags: [a, 1.5, true, null]}
      - key: to
        rate_limit: {unit: week, requests_per_unit: 0}
  - key: user
    detailed_metric: true
    rate_limit: {unit: month, requests_per_unit: 7}
    descriptors:
      - key: path
        rate_limit: {unit: year, requests_per_unit: 4294967295}
      - key: path
        value: /health
        rate_limit: {unlimited: true}
      - key: path
        value: 404
        value_to_metric: true
        rate_limit: {unit: second, requests_per_unit: 1}
`

func TestLimits(t *testing.T) {
	d := read(t, Options{Algorithm: "counter", Warn: 0.8}, shop)
	const day = 24 * time.Hour
	want := []rules.Limit{
		{Name: "shop|", Rate: rules.Rate{Unlimited: true}},
		{Name: "shop|plan_free", Rate: rules.Rate{Units: 4, Window: time.Minute},
			Replaces: []string{"shop|from_gateway|to_cart", "shop|from_gateway|to_search"}},
		{Name: "shop|from_gateway|to_cart", Label: "by_route",
			Rate: rules.Rate{Units: 20, Window: time.Hour}},
		{Name: "shop|from_gateway|to_search", Label: "by_route", Shadow: true,
			Rate: rules.Rate{Units: 30, Window: day},
			Metadata: map[string]any{
				"owner": map[string]any{"team": "search", "since": 2024.0},
				"tags":  []any{"a", 1.5, true, nil},
			}},
		{Name: "shop|from_gateway|to", Rate: rules.Rate{Window: 7 * day}},
		{Name: "shop|user", Rate: rules.Rate{Units: 7, Window: 30 * day}},
		{Name: "shop|user|path", Rate: rules.Rate{Units: 4294967295, Window: 365 * day}},
		{Name: "shop|user|path_/health", Rate: rules.Rate{Unlimited: true}},
		{Name: "shop|user|path_404", Rate: rules.Rate{Units: 1, Window: time.Second}},
	}
	limits := d.Limits()
	if len(limits) != len(want) {
		t.Fatalf("%d limits, want %d", len(limits), len(want))
	}
	for i, l := range limits {
		w := want[i]
		w.Domain, w.At = "shop", l.At
		if i > 0 {
			w.Algorithm, w.Warn = "counter", 0.8
		}
		if !reflect.DeepEqual(*l, w) {
			t.Errorf("limit %d is\n%+v, want\n%+v", i, *l, w)
		}
	}
	if at := limits[2].At.String(); at != "a.yaml:17:21" {
		t.Errorf("limit 2 is at %s", at)
	}
	var ignored []string
	for _, p := range d.Ignored() {
		ignored = append(ignored, p.At.String()+" "+strings.Fields(p.Text)[0])
	}
	if want := []string{"a.yaml:26:22 detailed_metric", "a.yaml:36:26 value_to_metric"}; !slices.
		Equal(ignored, want) {
		t.Errorf("ignored %q, want %q", ignored, want)
	}
}

func TestFind(t *testing.T) {
	d := read(t, Options{}, shop)
	for _, c := range []struct{ domain, descriptor, want string }{
		{"shop", "plan=free", "shop|plan_free"},
		{"shop", "plan=pro", "-"},
		{"shop", "from=gateway", "-"}, // no limit of its own
		{"shop", "from=gateway,to=cart", "shop|from_gateway|to_cart"},
		{"shop", "from=gateway,to=blog", "shop|from_gateway|to"},
		{"shop", "from=else,to=cart", "-"},
		{"shop", "from=gateway,to=cart,more=1", "-"}, // no fall back to a shallower one
		{"shop", "user=42", "shop|user"},
		{"shop", "user=42,path=/health", "shop|user|path_/health"},
		{"shop", "user=42,path=404", "shop|user|path_404"},
		{"shop", "user=42,path=", "shop|user|path"},
		{"shop", "path=404", "-"},
		{"other", "plan=free", "-"},
		{"", "plan=free", "-"},
	} {
		if got := found(d, c.domain, c.descriptor); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.domain, c.descriptor, got, c.want)
		}
	}
	if _, _, ok := d.Find("shop", nil); ok {
		t.Error("a descriptor without entries has a limit")
	}
	if !d.Has("shop") || d.Has("other") || !slices.Equal(d.Names(), []string{"shop"}) {
		t.Error("the domains are wrong")
	}
}

func TestFindPatterns(t *testing.T) {
	limit := func(key, value string) string {
		return fmt.Sprintf("  - {key: %q, value: %q, rate_limit: {unit: second, "+
			"requests_per_unit: 1}}\n", key, value)
	}
	d := read(t, Options{}, "domain: d\ndescriptors:\n"+
		limit("p", "/a*z*/*.jpg")+limit("p", "/a*")+limit("p", "/ab")+limit("p", "")+
		limit("q", "*")+limit("q", "x")+limit("any*", ""))
	for descriptor, want := range map[string]string{
		"p=/ab":           "d|p_/ab", // before the pattern, though later in the file
		"p=/abc":          "d|p_/a*",
		"p=/a":            "d|p_/a*",
		"p=/a*":           "d|p_/a*",
		"p=/aZzZ/x.jpg":   "d|p_/a*z*/*.jpg",
		"p=/az/.jpg":      "d|p_/a*z*/*.jpg",
		"p=/a/z.jpg":      "d|p_/a*", // the parts are there, in another order
		"p=/b":            "d|p",
		"p=":              "d|p",
		"q=x":             "d|q_x",
		"q=":              "d|q_*",
		"q=y":             "d|q_*",
		"anything=1":      "d|any*", // a pattern for keys
		"any=1":           "d|any*",
		"p_/a=":           "d|p_/a*", // as there, key and value are one text
		"other=1":         "-",
		"anything=1,p=/b": "-",
	} {
		if got := found(d, "d", descriptor); got != want {
			t.Errorf("%s: %s, want %s", descriptor, got, want)
		}
	}
}

func TestPatternPartsDoNotOverlap(t *testing.T) {
	d := read(t, Options{}, "domain: d\ndescriptors: [{key: k, value: aba*aba*aba, "+
		"rate_limit: {unit: second, requests_per_unit: 1}}]")
	for value, want := range map[string]bool{
		"abaabaaba": true, "abaabaaaba": true, "abaababa": false, "ababa": false, "aba": false,
	} {
		if got := found(d, "d", "k="+value) != "-"; got != want {
			t.Errorf("%s matches: %v, want %v", value, got, want)
		}
	}
}

func TestCalendarMonths(t *testing.T) {
	d := read(t, Options{CalendarMonths: true, Algorithm: "fixed"}, shop)
	for descriptor, want := range map[string]string{"user=1": "month", "plan=free": "fixed"} {
		if l, _, _ := d.Find("shop", parse(descriptor)); l.Algorithm != want {
			t.Errorf("%s: %s, want %s", descriptor, l.Algorithm, want)
		}
	}
}

func TestSeveralFiles(t *testing.T) {
	const one = "domain: d\ndescriptors: [{key: a, rate_limit: {name: n, unit: second, " +
		"requests_per_unit: 1}}]"
	const other = "domain: d\ndescriptors: [{key: b, rate_limit: {unit: second, " +
		"requests_per_unit: 1, replaces: [{name: n}]}}]"
	const elsewhere = "domain: e\ndescriptors: [{key: a, rate_limit: {name: n, unit: second, " +
		"requests_per_unit: 2}}]"
	d := read(t, Options{Merge: true}, other, elsewhere, one)
	if found(d, "d", "a=1") != "d|a" || found(d, "d", "b=1") != "d|b" ||
		found(d, "e", "a=1") != "e|a" {
		t.Error("a descriptor is missing")
	}
	if l, _, _ := d.Find("d", parse("b=1")); !slices.Equal(l.Replaces, []string{"d|a"}) {
		t.Errorf("b replaces %q", l.Replaces)
	}
	_, err := Read([]File{{"one", []byte(one)}, {"two", []byte(other)}}, Options{})
	if err == nil || !strings.HasPrefix(err.Error(), `two:1:9: the domain "d" is in one:1:9 `) {
		t.Errorf("one domain in two files: %v", err)
	}
	_, err = Read([]File{{"one", []byte(one)}, {"two", []byte(one)}}, Options{Merge: true})
	if err == nil || !strings.HasPrefix(err.Error(), "two:2:15: another descriptor ") {
		t.Errorf("a descriptor in two files: %v", err)
	}
}

func TestAnchors(t *testing.T) {
	d := read(t, Options{}, `
domain: d
descriptors:
  - key: a
    rate_limit: &slow {unit: minute, requests_per_unit: 5}
  - key: b
    rate_limit: *slow
  - key: c
    rate_limit:
      <<: *slow
      requests_per_unit: 6
  - key: e
    rate_limit:
      <<: [{unit: hour}, *slow]
`)
	for descriptor, want := range map[string]rules.Rate{
		"a=": {Units: 5, Window: time.Minute}, "b=": {Units: 5, Window: time.Minute},
		"c=": {Units: 6, Window: time.Minute}, "e=": {Units: 5, Window: time.Hour},
	} {
		l, _, ok := d.Find("d", parse(descriptor))
		if !ok || l.Rate != want {
			t.Errorf("%s: %+v, want %+v", descriptor, l, want)
		}
	}
}

func TestProblems(t *testing.T) {
	const head = "domain: d\ndescriptors:\n- key: k\n  "
	const limit = "rate_limit: {unit: second, requests_per_unit: 1}\n"
	deep := strings.Repeat("{key: a, descriptors: [", 80) + strings.Repeat("]}", 80)
	for name, c := range map[string]struct{ text, want string }{
		"empty file":      {"", "1:1: a file is a map, not empty"},
		"not a mapping":   {"[a]", "1:1: a file is a map, not a list"},
		"syntax":          {"domain: d\n\tx: 1", "2:1: YAML: found a tab character"},
		"no domain":       {"descriptors: []", "1:1: the file has no domain"},
		"empty domain":    {"domain: ''", "1:1: the file has no domain"},
		"second document": {"domain: d\n---\ndomain: e", "2:1: a second document"},
		"unknown field": {
			"domain: d\nlimits: []",
			`2:1: unknown key "limits" in a file; the keys are domain, descriptors`,
		},
		"field of others": {
			head + "unit: day",
			"4:3: unit stands in rate_limit, not in a descriptor",
		},
		"misplaced shadow": {
			head + "rate_limit: {unit: day, requests_per_unit: 1, shadow_mode: true}",
			"4:49: shadow_mode stands beside rate_limit",
		},
		"twice": {"domain: d\ndomain: e", `2:1: the key "domain" is in line 1 already`},
		"no key": {
			"domain: d\ndescriptors:\n- value: v",
			"3:3: the descriptor has no key",
		},
		"no mapping":     {"domain: d\ndescriptors: [a]", `2:15: a descriptor is a map, not "a"`},
		"no list":        {"domain: d\ndescriptors: {}", "2:14: descriptors is a list, not a map"},
		"list as a text": {"domain: d\ndescriptors:\n- key: [a]", "3:8: key is not a text"},
		"float": {
			head + "value: 1.10",
			"4:10: value is not a text: put it in quotation marks",
		},
		"duplicate": {head + limit + "- key: k", "5:3: another descriptor beside this one"},
		"joined duplicate": {
			"domain: d\ndescriptors: [{key: a_b, value: c}, {key: a, value: b_c}]",
			`2:37: another descriptor beside this one has the key and value "a_b_c"`,
		},
		"no unit": {
			head + "rate_limit: {requests_per_unit: 1}",
			"4:15: rate_limit has no unit",
		},
		"wrong unit": {
			head + "rate_limit: {unit: fortnight, requests_per_unit: 1}",
			`4:22: "fortnight" is not a unit`,
		},
		"unknown unit": {
			head + "rate_limit: {unit: UNKNOWN, requests_per_unit: 1}",
			`4:22: "UNKNOWN" is not a unit`,
		},
		"unlimited unit": {
			head + "rate_limit: {unit: day, unlimited: true}",
			"4:22: unit has no meaning beside unlimited",
		},
		"no requests": {
			head + "rate_limit: {unit: day}",
			"4:15: rate_limit has no requests_per_unit",
		},
		"negative": {
			head + "rate_limit: {unit: day, requests_per_unit: -1}",
			"4:46: requests_per_unit is not a whole number",
		},
		"too many": {
			head + "rate_limit: {unit: day, requests_per_unit: 4294967296}",
			"4:46: requests_per_unit is not",
		},
		"fraction": {
			head + "rate_limit: {unit: day, requests_per_unit: 1.5}",
			"4:46: requests_per_unit is not",
		},
		"quoted": {
			head + "rate_limit: {unit: day, requests_per_unit: '1'}",
			"4:46: requests_per_unit is not",
		},
		"no flag": {
			head + "shadow_mode: maybe",
			"4:16: shadow_mode is neither true nor false",
		},
		"share_threshold": {
			head + "share_threshold: true", "4:20: share_threshold is for a key or value with an " +
				"asterisk, not for",
		},
		"no quota_mode": {head + "quota_mode: maybe", "4:15: quota_mode is neither true nor false"},
		"empty replaces": {
			head + "rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: ''}]}",
			"4:60: the element of replaces has no name",
		},
		"replaces itself": {
			head + "rate_limit: {unit: day, requests_per_unit: 1, name: a, replaces: [{name: a}]}",
			`4:69: the limit replaces its own name, "a"`,
		},
		"replaces a text": {
			head + "rate_limit: {unit: day, requests_per_unit: 1, replaces: [a]}",
			`4:60: an element of replaces is a map, not "a"`,
		},
		"metadata text": {head + limit + "  metadata: a", "5:13: metadata is not a mapping"},
		"metadata number": {
			head + limit + "  metadata: {a: .nan}",
			"5:17: \".nan\" in metadata is a number that JSON does not have",
		},
		"metadata twice": {head + limit + "  metadata: {a: 1, a: 2}", "5:20: a is given twice"},
		"wrong merge": {
			"domain: d\ndescriptors: [{<<: a, key: k}]",
			"2:20: << needs a map",
		},
		"deep": {"domain: d\ndescriptors: [" + deep + "]", "nested more than 64 deep"},
		"endless": {
			"domain: d\ndescriptors: &a [{key: k, descriptors: *a}]",
			"nested more than 64 deep",
		},
		"endless merge": {
			"domain: d\ndescriptors: [&a {key: k, <<: *a}]",
			"<< is nested more than 64 deep",
		},
		"endless metadata": {
			head + limit + "  metadata: &a {a: *a}",
			"metadata is nested more than 64 deep",
		},
		"large": {strings.Repeat(" ", maxFile+1), "1:1: the file is larger than 16 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read([]File{{"f", []byte(c.text)}}, Options{})
			var problems rules.Problems
			if !errors.As(err, &problems) {
				t.Fatalf("the error is %v, of type %T", err, err)
			}
			want := c.want
			if want[0] >= '0' && want[0] <= '9' {
				want = "f:" + want
			}
			if !strings.Contains(problems[0].String(), want) {
				t.Errorf("the problem is\n%s, want\n%s", problems[0], want)
			}
			if at := problems[0].At; at.Line < 1 || at.Column < 1 {
				t.Errorf("it is at %+v", at)
			}
		})
	}
}

// A short file whose aliases stand for more descriptors than memory has is refused soon.
func TestAliasesAreBounded(t *testing.T) {
	text := "domain: d\ndescriptors:\n- {key: k0, descriptors: &x0 [{key: k}]}\n"
	for i := range 9 {
		text += fmt.Sprintf("- key: k%d\n  descriptors: &x%d\n", i+1, i+1)
		for j := range 20 {
			text += fmt.Sprintf("  - {key: k%d, descriptors: *x%d}\n", j, i)
		}
	}
	_, err := Read([]File{{"f", []byte(text)}}, Options{})
	if err == nil || !strings.Contains(err.Error(), "too many values, aliases included") {
		t.Errorf("the error is %.200v", err)
	}
}

func TestAllProblemsAreReported(t *testing.T) {
	_, err := Read([]File{
		{"two", []byte("domain: d\ndescriptors: [{key: k, quota_mode: maybe}, {}]\nx: 1")},
		{"one", []byte("domain: d\ndescriptors: [{key: k, rate_limit: {}}]")},
	}, Options{})
	var got []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		got = append(got, line[:strings.LastIndexByte(line[:9], ':')])
	}
	want := []string{"one:1:9", "two:2:36", "two:2:44", "two:3:1"}
	if !slices.Equal(got, want) {
		t.Errorf("the problems are\n%v, want those at %q", err, want)
	}
}

// TestOthersAreNotQuoted: what is wrong with a file of something else is said without its text.
func TestOthersAreNotQuoted(t *testing.T) {
	for _, text := range []string{
		"hunter2:x:0:0:/hunter2:/bin/sh\nhunter2:x:1:1:/:/bin/sh\n", "hunter2", "- hunter2",
		"hunter2: 1", "password: hunter2\nhunter2: {hunter2: 1}", "*hunter2", "a: !hunter2 b",
		"A=hunter2\nB=hunter2\n", "\"hunter2", "hunter2: 1\n---\nhunter2: 2",
		"a: &hunter2 [*hunter2]", "? [hunter2]\n: hunter2",
	} {
		_, err := Read([]File{{"other", []byte(text)}}, Options{})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// scalars are what the YAML library of envoyproxy/ratelimit reads as a value, and what it reads: an
// empty text if there is none, and "error" if the file is refused.
var scalars = [][2]string{
	{"1", "1"}, {"+1", "+1"}, {"0x10", "0x10"}, {"0b11", "0b11"}, {"-0b11", "-0b11"},
	{"0o17", "0o17"}, {"017", "017"}, {"1_000", "1_000"}, {"!!int 0x10", "0x10"},
	{"true", "true"}, {"yes", "yes"}, {"on", "on"}, {"n", "n"}, {"!!bool yes", "yes"},
	{"null", ""}, {"Null", ""}, {"~", ""}, {"", ""},
	{"2026-01-01", "2026-01-01"}, {"2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"},
	{"2026-01-01 10:00:00", "2026-01-01 10:00:00"}, {"!!timestamp 2026-01-01", "2026-01-01"},
	{"2026-1-1", "2026-1-1"}, {"1:30", "1:30"}, {"190:20:30", "190:20:30"},
	{"1.50", "error"}, {"1.", "error"}, {".5", "error"}, {"-.5", "error"}, {"1_0.5", "error"},
	{"1e3", "error"}, {"12e45", "error"}, {"1E-3", "error"}, {"1_e3", "error"}, {"08", "error"},
	{".inf", "error"}, {".NaN", "error"}, {"!!float 1", "error"},
	{"99999999999999999999", "error"}, {"1e400", "1e400"}, {"0x1p4", "0x1p4"},
	{"infinity", "infinity"}, {"nan", "nan"}, {"1.0e", "1.0e"}, {"5.0.0", "5.0.0"}, {"0x", "0x"},
	{"<<", "<<"}, {"=", "="}, {"+", "+"}, {".", "."}, {"!custom x", "x"}, {"!!str 1.5", "1.5"},
	{`"1.50"`, "1.50"}, {"!!binary aGVsbG8=", "hello"}, {"!!binary a", "error"},
}

// TestScalars: values and keys are read as envoyproxy/ratelimit reads them.
func TestScalars(t *testing.T) {
	for _, c := range scalars {
		text, want := c[0], c[1]
		of := func(descriptor string) (*Domains, error) {
			return Read([]File{{Name: "f", Text: []byte(
				"domain: d\ndescriptors:\n- " + descriptor +
					"\n  rate_limit: {unit: hour, requests_per_unit: 1}\n")}}, Options{})
		}
		domains, err := of("key: k\n  value: " + text)
		switch {
		case (err != nil) != (want == "error"):
			t.Errorf("value: %s: %v, want %s", text, err, want)
		case err != nil:
		default:
			_, _, found := domains.Find("d", rules.Descriptor{{Name: "k", Value: want}})
			_, _, other := domains.Find("d", rules.Descriptor{{Name: "k", Value: "other"}})
			if !found || other != (want == "") {
				t.Errorf("value: %s is not %q", text, want)
			}
		}
		domains, err = of("key: " + text)
		switch {
		case (err != nil) != (want == "error" || want == ""):
			t.Errorf("key: %s: %v, want %s", text, err, want)
		case err != nil:
		default:
			if _, _, found := domains.Find("d", rules.Descriptor{{Name: want}}); !found {
				t.Errorf("key: %s is not %q", text, want)
			}
		}
	}
}
