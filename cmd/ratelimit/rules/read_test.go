package rules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/yamlfile"
)

func TestRead(t *testing.T) {
	const path = "testdata/limits.yaml"
	f, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	at := func(line, column int) Position {
		return Position{File: path, Line: line, Column: column}
	}
	minute := func(units int64) Rate { return Rate{Units: units, Window: time.Minute} }
	anyTenant := Condition{Entry: "tenant", Prefix: true}
	want := &File{
		Store:     Text{"redis://cache.internal:6379", at(1, 8)},
		OnFailure: Text{"local", at(2, 13)},
		Set:       f.Set,
		Paths:     []string{path},
	}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("got %+v, want %+v", f, want)
	}
	limits := []*Limit{
		{Name: "requests", When: []Condition{anyTenant}, Key: []string{"tenant"},
			Rate: minute(1000), Algorithm: "log", Holds: time.Minute, Warn: 0.8, At: at(4, 5),
			By: &Plans{"plan", map[string]Rate{"pro": minute(10000), "trial": minute(100)},
				at(10, 9)},
			Except: []Exception{{When: []Condition{equals("tenant", "acme")},
				Rate: minute(50000), At: at(12, 9)}}},
		{Name: "chat", Key: []string{"tenant"}, Rate: minute(20), Shadow: true, At: at(14, 5),
			When: []Condition{starts("path", "/v1/chat"), anyTenant}},
		{Name: "uploads", Key: []string{"tenant", "user"}, Rate: Rate{Units: 5},
			Algorithm: "in-flight", Holds: 10 * time.Minute, OnFailure: "open", At: at(19, 5)},
		{Name: "quota", When: []Condition{equals("domain", "api")},
			Key: []string{"tenant"}, Rate: Rate{Units: 1000000}, Algorithm: "month", Always: true,
			At: at(25, 5), Except: []Exception{
				{When: []Condition{equals("tenant", "internal")},
					Rate: Rate{Unlimited: true}, At: at(32, 9)},
				{When: []Condition{equals("tenant", "007"),
					starts("path", "/v1/")}, At: at(33, 9)}}},
		{Name: "blocked", Key: []string{"tenant"}, Rate: Rate{Window: 24 * time.Hour},
			Algorithm: "block", At: at(34, 5)},
	}
	if len(f.Set.Limits()) != len(limits) {
		t.Fatalf("%d limits were read, want %d", len(f.Set.Limits()), len(limits))
	}
	for i, l := range f.Set.Limits() {
		if !reflect.DeepEqual(l, limits[i]) {
			t.Errorf("limit %d: got %+v, want %+v", i, l, limits[i])
		}
	}
	var names []string
	for _, v := range f.Set.Variants() {
		if v.Algorithm != nil {
			names = append(names, v.Limit.Name+" "+v.Algorithm.Name())
		}
	}
	wantNames := []string{"requests log3h2", "requests log3h2", "requests log3h2",
		"requests log3h2", "chat log3", "uploads flight2", "quota month1", "blocked block1"}
	if !slices.Equal(names, wantNames) {
		t.Errorf("the algorithms are %q, want %q", names, wantNames)
	}
}

// problemsOf returns the lines of the problems of a file with the given text.
func problemsOf(t *testing.T, text string) []string {
	t.Helper()
	path := write(t, t.TempDir(), "f", text)
	_, err := Read(path)
	if err == nil {
		return nil
	}
	var problems Problems
	if !errors.As(err, &problems) {
		t.Fatalf("%v is not of type Problems", err)
	}
	return strings.Split(strings.ReplaceAll(err.Error(), path+":", ""), "\n")
}

func write(t *testing.T, folder, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestProblemsOfFiles(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string // beginnings of the lines
	}{
		{"empty", "", []string{"1:1: the file is empty"}},
		{"only a comment", "# nothing\n", []string{"1:1: the file is empty"}},
		{"a list", "- a\n", []string{"1:1: the file is a map, not a list"}},
		{"a null", "~\n", []string{"1:1: the file is a map, not empty"}},
		{"syntax", "store: memory\nlimits: [\n", []string{"2:1: YAML: did not find expected node"}},
		{"a star", "limits: [{name: a, key: [b], max: 1/m, when: {b: *}}]",
			[]string{"1:1: YAML: did not find expected alphabetic or numeric character; a value " +
				`that begins with * needs quotation marks, as in "*"`}},
		{"a named star", "store: *x\n", []string{"1:1: YAML: unknown anchor referenced; a v"}},
		{"UTF-8", "store: memory\nlimits: # \xc3\xa4\xff\n", []string{"2:12: this is not UTF-8"}},
		{"UTF-16", "\xff\xfes\x00", []string{"1:1: this is not UTF-8"}},
		{"a tab", "limits:\n \t- name: a\n", []string{"2:2: a tab: YAML is indented by spaces"}},
		{"two documents", "store: memory\n---\nstore: memory\n",
			[]string{"2:1: a second document begins here"}},
		{"anchors", "store: &a memory\npassword_file: *a\n", []string{
			"1:8: anchors and aliases are not", "2:16: anchors and aliases are not"}},
		{"a bomb", "a: &a [x, x]\nb: &b [*a, *a]\nlimits: [*b, *b]\n", []string{
			"1:4: anchors and", "2:4: anchors and", "3:10: anchors and", "3:14: anchors and"}},
		{"a loop", "limits: &a [*a]\n", []string{"1:9: anchors and"}},
		{"a merge", "limits: [{<<: {name: a}, max: 1/m}]\n", []string{
			`1:11: unknown key "<<" in a limit; the keys are name, when, key, max, algorithm`}},
		{"another key", "limits:\n- {name: a, in_flight: 3}\n- {nam: b, max: 1/m}\n", []string{
			`2:13: unknown key "in_flight" in a limit: did you mean algorithm: in-flight?`,
			`3:4: unknown key "nam" in a limit: did you mean name?`}},
		{"indented less", "store: memory\nlimits:\n- name: a\n  max: 1/m\n- name: b\n" +
			"  key: [\n  a]\n max: 1/m\n", []string{"8:1: YAML: did not find expected key"}},
		{"indented more", "limits:\n  - name: a\n    max: 1/m\n   - name: b\n",
			[]string{"4:1: YAML: did not find expected '-' indicator"}},
		{"an open list", "limits:\n- name: a\n  key: [tenant\n  max: 1/m\n- name: b\n",
			[]string{"3:1: YAML: did not find expected ',' or ']'"}},
		{"an open text", "store: \"memory\n",
			[]string{"1:1: YAML: found unexpected end of stream"}},
		{"a tag", "store: !!str memory\n", []string{"1:8: tags such as !!str are not"}},
		{"depth", strings.Repeat("[", 60) + strings.Repeat("]", 60),
			[]string{"1:52: lists and maps are nested more than 50 deep"}},
		{"keys", "stroe: memory\nstore: memory\nstore: memory\n1: 2\n? [a]\n: b\n~: c\n", []string{
			`1:1: unknown key "stroe" in the file: did you mean store?`,
			`3:1: the key "store" is in line 2 already`,
			`4:1: unknown key "1" in the file`,
			`5:3: a key of the file is a name, not a list`,
			`7:1: a key of the file is a name, not empty`}},
		{"types", "store: 1\npassword_file: [a]\non_failure: lokal\ninstances: 0\nlimits: {}\n" +
			"include: {}\nkey_secret_file: {}\n", []string{
			`1:8: store is a text: write "1"`,
			`2:16: password_file is a text, not a list`,
			`3:13: on_failure is closed, open or local, not "lokal": did you mean local?`,
			`4:12: instances is an integer from 1, not "0"`,
			`5:9: limits is a list, not a map`,
			`6:10: include is a text, not a map`,
			`7:18: key_secret_file is a text, not a map`}},
		{"more types", "store:\ninstances: '3'\nlimits: [a, {name: 7, max: []}]\ninclude: [~]\n",
			[]string{
				`1:7: store is a text, not empty`,
				`2:12: instances is an integer from 1, not "3"`,
				`3:10: a limit is a map, not "a"`,
				`3:20: name is a text: write "7"`,
				`3:28: max is one value, not a list`,
				`4:11: include is a text, not empty`}},
		{"store", "store: redis://a@b@c\n", []string{"1:8: options: the URL of the store: an @"}},
		{"variables", "store: redis://${RULES_UNSET}\npassword_file: ${a b}\n", []string{
			"1:8: store: the environment has no variable RULES_UNSET",
			"2:16: password_file: ${ begins a variable"}},
		{"an open variable", "store: ${HOME\n", []string{"1:8: store: ${ begins a variable"}},
		{"include", "include: '[.yaml'\n", []string{`1:10: include: "[.yaml" is not a pattern`}},
		{"no limit fits", "limits:\n- {name: a b, max: 1/m}\n- {name: a, max: 1/m}\n" +
			"- {name: a, max: 1/m, frist: 2}\n- {name: a, max: 1/m}\n", []string{
			`2:3: Name "a b" has a byte`,
			`4:3: another limit has the name "a", at 3:3`,
			`4:23: unknown key "frist" in a limit`,
			`5:3: another limit has the name "a", at 3:3`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			compareLines(t, problemsOf(t, test.text), test.want)
		})
	}
}

func compareLines(t *testing.T, got, want []string) {
	t.Helper()
	for i, line := range got {
		if i >= len(want) || !strings.HasPrefix(line, want[i]) {
			t.Errorf("line %d is\n%s", i, line)
		}
	}
	if len(got) < len(want) {
		t.Errorf("there is no line\n%s", want[len(got)])
	}
}

func TestProblemsOfLimits(t *testing.T) {
	tests := []struct {
		limit string   // without its name and braces
		want  []string // beginnings of the lines, whose columns count from the first of limit
	}{
		{"max: 1000", []string{`6: max: "1000" is not of the form MAX/WINDOW`}},
		{"max: 0/1m", []string{"6: write max: 0 to admit nothing"}},
		{"max: b=1/1m", []string{"6: max is of the form MAX/WINDOW"}},
		{"max: -1/1m", []string{"6: max: Max -1 is not between"}},
		{"max: 1/9000h", []string{"6: max: Window 9000h0m0s is not between"}},
		{"max: ~", []string{"6: max is one value, not empty"}},
		{"max: 5/1m, algorithm: month", []string{"6: max of month is an integer from 0"}},
		{"max: 5/1m, on_timeout: charge", []string{"24: on_timeout is for limits with holds"}},
		{"max: 5, algorithm: in-flight, holds: 1m, on_timeout: charge", []string{
			"54: on_timeout is for limits with holds"}},
		{"max: 5/1m, holds: 1m, on_timeout: fre", []string{"35: on_timeout is free or charge"}},
		{"max: 5/month", []string{"6: write max: 5 and algorithm: month"}},
		{"max: 5, algorithm: month, starts: 32", []string{"35: starts is a day of the month from"}},
		{"max: 5, algorithm: week, starts: 1", []string{"34: starts is a day from monday to"}},
		{"max: 5/1m, starts: 1", []string{"20: starts is for algorithm: week, month or quarter"}},
		{"max: 5/1m, offset: 1m", []string{"20: offset is for algorithm: fixed, week, month or"}},
		{"max: 5/1m, algorithm: fixed, offset: 1", []string{"38: offset is a duration such as 5h"}},
		{"max: 5/1m, algorithm: fixed, offset: -1m", []string{"-9: max: offset -1m0s is not"}},
		{"max: 5, algorithm: month, by: {entry: a, b: {starts: 2}}", []string{
			"45: the rate has no max"}},
		{"max: 1e3, algorithm: in-flight", []string{"6: max of in-flight is an integer from 0"}},
		{"max: 5, algorithm: block", []string{"6: max of a block is a duration such as"}},
		{"max: 5, algorithm: blok", []string{"20: algorithm is log, bucket, fixed, counter, " +
			`week, month, quarter, in-flight or block, not "blok": did you mean block?`}},
		{"max: 1d, algorithm: block, holds: 1m, warn: 5%", []string{"45: a block has no warning"}},
		{"max: 1d, algorithm: block, holds: 1m", []string{"-9: max: a block holds no units"}},
		{"max: 1/m, holds: 1ms", []string{"-9: max: the time-out 1ms is not"}},
		{"max: 1/m, holds: soon", []string{"18: holds is a duration such as"}},
		{"max: 1/m, algorithm: bucket, debt: 30s", []string{
			"-9: max: the debt 30s is shorter than the Window 1m0s"}},
		{"max: 1/m, algorithm: bucket, debt: 1h, by: {entry: plan, pro: 1/1d}", []string{
			"44: by plan=pro: the debt 1h0m0s is shorter than the Window 24h0m0s"}},
		{"max: 1/m, algorithm: bucket, debt: 1h, except: [{when: {a: b}, max: 1/1d}]", []string{
			"49: except a=b: the debt 1h0m0s is shorter than the Window 24h0m0s"}},
		{"max: 1/m, algorithm: bucket, debt: 2", []string{"36: debt is a duration such as"}},
		{"max: 1/m, algorithm: bucket, debt: 367d", []string{"36: debt is a duration such as"}},
		{"max: 1/m, debt: 1h", []string{"17: debt is for algorithm: bucket"}},
		{"max: 1, algorithm: month, debt: 1h", []string{"33: debt is for algorithm: bucket"}},
		{"max: 1/m, algorithm: log, debt: 1h, holds: 1m", []string{
			"33: debt is for algorithm: bucket"}},
		{"max: 1/m, algorithm: lok, debt: 1h", []string{"22: algorithm is log, bucket"}},
		{"max: 1/m, warn: 0.8", []string{"17: warn is a percentage such as 80%"}},
		{"max: 1/m, warn: 101%", []string{"17: warn is a percentage such as 80%"}},
		{"max: 1/m, warn: NaN%", []string{"17: warn is a percentage such as 80%"}},
		{"max: 1/m, lease: 0.02", []string{"18: lease is a percentage such as 2%, from 0% to 10%"}},
		{"max: 1/m, lease: 11%", []string{"18: lease is a percentage such as 2%, from 0% to 10%"}},
		{"max: 1/m, lease: NaN%", []string{"18: lease is a percentage such as 2%"}},
		{"max: 1/m, lease: 2%, algorithm: counter", []string{
			"18: lease is not for algorithm: counter"}},
		{"max: 1/m, lease: 2%, algorithm: fixed, holds: 1m", []string{
			"18: lease is not for algorithm: fixed with holds"}},
		{"max: 1/m, mode: shade", []string{"17: mode is shadow or enforce, not"}},
		{"max: 1/m, charge: never", []string{"19: charge is always or admitted, not"}},
		{"max: 1, algorithm: in-flight, charge: always", []string{"-9: charge: always is not for"}},
		{"max: 1/m, key: [" + strings.Repeat("a, ", 33) + "]",
			[]string{"16: the key has more than 32 entries"}},
		{"max: 1/m, when: {" + strings.Repeat("a: b, ", 33) + "}",
			[]string{"17: when has more than 32 conditions"}},
		{"max: 1d, algorithm: block, charge: always", []string{"-9: charge: always is not for"}},
		{"max: 1, algorithm: in-flight, mode: shadow", []string{"-9: mode: shadow is not for"}},
		{"max: 1/m, on_failure: local", []string{"23: on_failure of a limit is closed or open"}},
		{"max: 1/m, key: tenant", []string{`16: key is a list, not "tenant"`}},
		{"max: 1/m, key: [a, b, a]", []string{`23: the entry "a" is in the key twice`}},
		{"max: 1/m, when: [a]", []string{"17: when is a map, not a list"}},
		{"max: 1/m, when: {a: b*c*, c: [{}], e: ~, '': f}", []string{
			"21: a * can only be the end of a value", "31: the value of c is one value, not a map",
			"39: the value of e is one value, not empty", "42: the name of an entry is empty"}},
		{"max: 1/m, by: {pro: 1/m}", []string{"15: by has no entry"}},
		{"max: 1/m, by: {entry: plan}", []string{"15: by has no rates"}},
		{"max: 1/m, by: {entry: plan, p*: 1/m, q: x}", []string{
			`29: by has exact values: write an exception for "p*"`, `41: max: "x" is not of the`}},
		{"max: 1/m, except: [{max: 1/m}, {when: {a: b}}, {when: {}, max: 1/m}, x]", []string{
			"20: the exception has no when", "32: the exception has no max",
			"55: an exception without conditions", `70: an exception is a map, not "x"`}},
		{"max: 1/m, except: [{limit: a, when: {a: b}, max: 1/m}]",
			[]string{`21: unknown key "limit" in an exception`}},

		// Rates that no request gets.
		{"max: 1/m, except: [{when: {a: b*}, max: 2/m}, {when: {a: bc, d: e}, max: 3/m}]",
			[]string{"47: this exception is never reached: that at 1:39 matches"}},
		{"max: 1/m, except: [{when: {a: b, c: d}, max: 2/m}, {when: {a: b*}, max: 3/m}, " +
			"{when: {c: d, a: b}, max: 3/m}]",
			[]string{"79: this exception is never reached: that at 1:39 matches"}},
		{`max: 1/m, key: [t], except: [{when: {t: "*"}, max: 2/m}], by: {entry: a, b: 1/m}`,
			[]string{"30: this exception matches every request of the limit"}},
		{"max: 1/m, when: {a: b}, except: [{when: {a: c}, max: 2/m}]",
			[]string{"34: this exception matches no request, since the limit is for a=b only"}},
		{"max: 1/m, when: {a: b*}, except: [{when: {a: c*}, max: 2/m}, {when: {a: c}, max: 2/m}]",
			[]string{"35: this exception matches no request, since the limit is for a=b* only",
				"62: this exception matches no request"}},
		{"max: 1/m, when: {a: bc}, except: [{when: {a: b*, c: d}, max: 2/m}]", nil},
		{"max: 1/m, when: {a: b*}, except: [{when: {a: bc*}, max: 2/m}]", nil},
		{"max: 1/m, when: {p: q*}, by: {entry: p, r: 1/m, qq: 2/m}",
			[]string{"30: p=r matches no request, since the limit is for p=q* only"}},
		{"max: 1/m, when: {p: q}, by: {entry: p, q: 1/m}",
			[]string{"29: p=q matches every request of the limit"}},
		{"max: 1/m, except: [{when: {p: q*}, max: 2/m}], by: {entry: p, qq: 1/m, r: 1/m}",
			[]string{"52: p=qq is never reached: the exception at 1:39 matches"}},
		{"max: 1/m, except: [{when: {p: q, a: b}, max: 2/m}], by: {entry: p, q: 1/m}", nil},
	}
	const before = "limits: [{name: n, "
	for _, test := range tests {
		t.Run(test.limit, func(t *testing.T) {
			var want []string
			for _, w := range test.want {
				var column int
				var rest string
				if _, err := fmt.Sscanf(w, "%d", &column); err != nil {
					t.Fatal(err)
				}
				_, rest, _ = strings.Cut(w, ": ")
				want = append(want, fmt.Sprintf("1:%d: %s", len(before)+column, rest))
			}
			compareLines(t, problemsOf(t, before+test.limit+"}]\n"), want)
		})
	}
}

func TestReadIncludes(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("RULES_HOST", "cache.internal")
	path := write(t, folder, "main.yaml", "include: [overrides/*.yaml, more.yaml]\n"+
		"store: redis://${RULES_HOST}:6379/${RULES_HOST}\n"+
		"limits:\n- name: a\n  key: [tenant]\n  max: 1/m\n  except:\n"+
		"  - {when: {tenant: own}, max: 2/m}\n- {name: m, max: 7, algorithm: month}\n")
	write(t, folder, "overrides/2.yaml", "except:\n"+
		"- {limit: a, when: {tenant: t2}, max: 4/m}\n- {limit: m, when: {x: y}, max: 8}\n")
	write(t, folder, "overrides/1.yaml", "except: [{limit: late, when: {x: y}, max: 3/m},"+
		" {limit: a, when: {tenant: t1}, max: 3/m}]")
	write(t, folder, "overrides/.swap.yaml", "x: y")
	write(t, folder, "overrides/empty.yaml", "# none yet\n")
	write(t, folder, "more.yaml", "limits: [{name: late, max: 1/m}]")
	f, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range f.Set.Limits() {
		got = append(got, l.Name)
		for _, e := range l.Except {
			got = append(got, fmt.Sprint(join(e.When), " ", e.Rate.Units))
		}
	}
	want := []string{"a", "tenant=own 2", "tenant=t1 3", "tenant=t2 4", "m", "x=y 8", "late",
		"x=y 3"}
	if !slices.Equal(got, want) {
		t.Errorf("the limits are %q, want %q", got, want)
	}
	if f.Store.Value != "redis://cache.internal:6379/cache.internal" {
		t.Errorf("the store is %q", f.Store.Value)
	}
	var paths []string
	for _, p := range f.Paths {
		relative, _ := filepath.Rel(folder, p)
		paths = append(paths, relative)
	}
	want = []string{"main.yaml", "overrides/*.yaml", "more.yaml", "overrides/1.yaml",
		"overrides/2.yaml", "overrides/empty.yaml"}
	if !slices.Equal(paths, want) {
		t.Errorf("the paths are %q, want %q", paths, want)
	}
}

func TestProblemsOfIncludes(t *testing.T) {
	folder := t.TempDir()
	path := write(t, folder, "main.yaml", "include: ['*.yaml', missing, folder]\n"+
		"limits: [{name: a, max: 1/m}, {name: m, max: 7, algorithm: month}]\n")
	write(t, folder, "folder/x", "")
	write(t, folder, "1.yaml", "store: memory\nlimits: [{name: a, max: 1/m}]\nexcept:\n"+
		"- {limit: aa, when: {x: y}, max: 1/m}\n- {when: {x: y}, max: 1/m}\n- x\n"+
		"- {limit: m, when: {x: y}, max: 1/m}\n- {limit: a, when: {x: y}, max: 1/m}\n")
	write(t, folder, "2.yaml", "except: [{limit: a, when: {x: y}, max: 1/m}]")
	f, err := Read(path)
	if err == nil || len(f.Paths) != 6 {
		t.Fatalf("the error is %v, and the paths %q", err, f.Paths)
	}
	compareLines(t, strings.Split(strings.ReplaceAll(err.Error(), folder+"/", ""), "\n"), []string{
		`1.yaml:1:1: unknown key "store" in an included file`,
		`1.yaml:2:10: another limit has the name "a", at main.yaml:2:10`,
		`1.yaml:4:11: no limit has the name "aa": did you mean a?`,
		`1.yaml:5:3: the exception does not name its limit`,
		`1.yaml:6:3: an exception is a map, not "x"`,
		`1.yaml:7:33: max of month is an integer from 0`,
		`2.yaml:1:10: this exception is never reached: that at 1.yaml:8:3 matches`,
		`main.yaml:1:21: include: missing: no such file or directory`,
		`main.yaml:1:30: include: folder: this is not a regular file`,
	})
}

func TestReadBoundsFiles(t *testing.T) {
	folder := t.TempDir()
	path := write(t, folder, "a.yaml", "include: b.yaml\nlimits: [{name: a, max: 1/m}]\n")
	write(t, folder, "b.yaml", strings.Repeat("#"+strings.Repeat(" ", 62)+"\n", maxSize/64))
	_, err := Read(path)
	want := filepath.Join(folder, "b.yaml") + ": all files together are larger than 16 MiB"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	got := problemsOf(t, "limits:\n"+strings.Repeat("- x\n", 5000))
	if len(got) != yamlfile.MaxProblems+1 ||
		got[yamlfile.MaxProblems] != "1002:3: more problems follow" {
		t.Errorf("got %d problems, at last %s", len(got), got[len(got)-1])
	}
	path = filepath.Join(folder, "missing.yaml")
	if f, err := Read(path); err == nil || err.Error() != path+": no such file or directory" ||
		!slices.Equal(f.Paths, []string{path}) {
		t.Errorf("got %v, %v", f, err)
	}
}

// TestIncludeStaysBelow: a path that leads out of the folder of the file is an error, whatever is
// there.
func TestIncludeStaysBelow(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, "out.yaml", "limits: []\n")
	write(t, folder, "in/tenants/a.yaml", "limits: [{name: a, max: 1/m}]\n")
	for _, include := range []string{
		"../out.yaml", "../*.yaml", "tenants/../../out.yaml", "*/../../out.yaml", "..",
		"/etc/passwd", folder + "/out.yaml", folder + "/in/tenants/a.yaml", "/proc/self/environ",
	} {
		path := write(t, folder, "in/main.yaml", "include: ["+strconv.Quote(include)+"]\n")
		f, err := Read(path)
		want := path + ":1:11: include: " + strconv.Quote(include) +
			" is not below the folder of this file"
		if err == nil || err.Error() != want || len(f.Paths) != 1 {
			t.Errorf("got %v of %v, want %s", err, f.Paths, want)
		}
	}
	for _, include := range []string{
		"tenants/a.yaml", "./tenants/*.yaml", "tenants/../tenants/a.yaml",
	} {
		path := write(t, folder, "in/main.yaml", "include: "+include+"\n")
		if f, err := Read(path); err != nil || len(f.Set.Limits()) != 1 {
			t.Errorf("%s: %v", include, err)
		}
	}
}

// TestOthersAreNotQuoted: what is wrong with a file of something else is said without its text, if
// it is the main file or an included one, such as a link in a repository.
func TestOthersAreNotQuoted(t *testing.T) {
	folder := t.TempDir()
	main := write(t, folder, "main.yaml", "include: other\nlimits: []\n")
	for name, text := range map[string]string{
		"passwd":      "hunter2:x:0:0:hunter2:/hunter2:/bin/hunter2\nhunter2:x:1:1::/:/bin/sh\n",
		"token":       "hunter2\n",
		"quoted":      "'hunter2'\n",
		"variables":   "A=hunter2\nB=hunter2\n",
		"a map":       "password: hunter2\nhunter2: {hunter2: hunter2}\n",
		"properties":  "hunter2: 1\n",
		"a list":      "- hunter2\n- {hunter2: hunter2}\n",
		"a key":       "-----BEGIN hunter2-----\nhunter2\n-----END hunter2-----\n",
		"an alias":    "*hunter2\n",
		"an anchor":   "&hunter2 a: b\n",
		"a tag":       "!hunter2 a\n",
		"documents":   "hunter2: 1\n---\nhunter2: 2\n",
		"a directive": "%hunter2 hunter2\n---\nhunter2\n",
		"an end":      "\"hunter2\n",
		"an escape":   "\"hunter2\\q\"\n",
		"JSON":        `{"password": "hunter2", "hunter2": [1]}`,
		"a block":     "|\n  hunter2\n",
		"not UTF-8":   "hunter2\xff\n",
		"twice":       "hunter2: 1\nhunter2: 2\n",
		"no scalar":   "? [hunter2]\n: hunter2\n",
	} {
		other := write(t, folder, "other", text)
		for _, path := range []string{main, other} {
			_, err := Read(path)
			if err == nil || !strings.HasPrefix(err.Error(), other+":") ||
				strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
