package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// addresses are values of clients, and others that look like them.
var addresses = []string{"10.1.2.3", "10.1.2.4", "10.200.0.1", "192.0.2.7", "::ffff:10.1.2.3",
	"2001:db8::/64", "2001:db8:0:1::/64", "2001:db8:7::1", "fe80::1%eth0", "10.1.2.0/24",
	"10.1.2.3:80", "10."}

// Lists that are equal are the same Values, as those of one file are; listed has their patterns.
var (
	listed   = make(map[*Values][]string)
	interned = make(map[string]*Values)
)

// anyList returns a condition on values, few of them, of a list or a file.
func anyList(t *rapid.T) Condition {
	entry := anyName.Draw(t, "entry")
	return listOf(t, entry, anyPatterns(t, entry))
}

func anyPatterns(t *rapid.T, entry string) []string {
	pattern := rapid.OneOf(anyValue, rapid.Map(anyValue, func(s string) string { return s + "*" }))
	if entry == clientEntry {
		pattern = rapid.OneOf(rapid.SampledFrom([]string{"10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32",
			"10.1.2.0/30", "0.0.0.0/0", "2001:db8::/32", "2001:db8::/63", "2001:db8:7::1/128",
			"::/0", "fe80::/10", "10.1.*"}), rapid.SampledFrom(addresses[:5]))
	}
	return rapid.SliceOfN(pattern, 1, 5).Draw(t, "list")
}

func listOf(t *rapid.T, entry string, patterns []string) Condition {
	file := rapid.SampledFrom([]string{"", "values.txt"}).Draw(t, "file")
	name := fmt.Sprintf("%v %q %q", entry == clientEntry, patterns, file)
	if interned[name] == nil {
		var elements []element
		for _, p := range patterns {
			e, err := elementOf(p, entry)
			if err != nil {
				t.Fatal(err)
			}
			elements = append(elements, e)
		}
		v := values(elements, file)
		interned[name], listed[v] = v, patterns
	}
	return Condition{Entry: entry, Among: interned[name]}
}

// anyOther returns a condition to compare with c. Of a list it is mostly another list, often one
// that has more patterns.
func anyOther(t *rapid.T, c Condition) Condition {
	if c.Among == nil {
		return anyCondition.Draw(t, "other")
	}
	switch patterns := anyPatterns(t, c.Entry); rapid.IntRange(0, 2).Draw(t, "other") {
	case 0:
		return listOf(t, c.Entry, append(patterns, listed[c.Among]...))
	case 1:
		return listOf(t, c.Entry, patterns)
	default:
		return anyCondition.Draw(t, "other")
	}
}

// naivePattern reports whether a value matches one pattern of a list.
func naivePattern(pattern, entry, value string) bool {
	if network, err := netip.ParsePrefix(pattern); err == nil && entry == clientEntry {
		bits := -1
		if of, err := netip.ParsePrefix(value); err == nil {
			value, bits = of.Addr().String(), of.Bits()
		}
		addr, err := netip.ParseAddr(value)
		if addr = addr.Unmap().WithZone(""); bits < 0 {
			bits = addr.BitLen()
		}
		return err == nil && network.Contains(addr) && bits >= network.Bits()
	}
	beginning, prefix := strings.CutSuffix(pattern, "*")
	return prefix && strings.HasPrefix(value, beginning) || value == pattern
}

// TestImpliesAndExcludes: of two conditions that one implies the other, or that they exclude each
// other, no value says anything else.
func TestImpliesAndExcludes(t *testing.T) {
	said := make(map[string]int)
	check := func(t *rapid.T) {
		a := rapid.OneOf(anyCondition, rapid.Custom(anyList)).Draw(t, "condition")
		b := anyOther(t, a)
		b.Entry = a.Entry
		if a.Entry == clientEntry && a.Among == nil && b.Among != nil ||
			a.Entry != clientEntry && b.Among != nil && len(b.Among.networks) > 0 ||
			b.Entry == clientEntry && b.Among != nil && len(b.Among.networks) == 0 {
			return // patterns of another entry
		}
		numbers := make(names)
		c, d := numbers.conditions([]Condition{a})[0], numbers.conditions([]Condition{b})[0]
		implies, excludes := c.implies(d), c.excludes(d)
		if implies && a.Among != nil {
			said["implies"]++
		}
		if excludes && a.Among != nil {
			said["excludes"]++
		}
		for range 10 {
			value := anyValue.Draw(t, "value")
			if a.naive(value) && (implies && !b.naive(value) || excludes && b.naive(value)) {
				t.Fatalf("%v and %v: implies %v, excludes %v, in spite of %q",
					listed[a.Among], listed[b.Among], implies, excludes, value)
			}
		}
	}
	for range 4 { // so that both are found
		rapid.Check(t, check)
	}
	if said["implies"] == 0 || said["excludes"] == 0 {
		t.Errorf("found %v", said)
	}
}

// TestConditionTexts: conditions are short, whatever they have.
func TestConditionTexts(t *testing.T) {
	folder := t.TempDir()
	path := write(t, folder, "limits.yaml", `
limits:
- name: a
  when:
    client: [10.0.0.0/8, 2001:db8::/32, 10.1.0.0/16, "192.0.2.0/24"]
    remote_address: 10.0.0.0/8
    tenant: {file: partners.txt}
    plan: [pro, team*]
    one: [pro]
    path: [/a, /b, /c]
  max: 1/m
`)
	write(t, folder, "partners.txt", "acme\n")
	f, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "client in 3 networks, remote_address in 10.0.0.0/8, tenant in partners.txt, " +
		"plan in [pro, team*], one=pro, path in 3 values"
	l := f.Set.Limits()[0]
	if got := join(l.When); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	d := entries("client", "10.2.3.4", "remote_address", "10.1.1.1", "tenant", "umbrella",
		"plan", "team", "one", "pro", "path", "/a")
	if got := l.Mismatch("", d); got != "tenant is umbrella, not in partners.txt" {
		t.Errorf("the mismatch is %q", got)
	}
	d[2].Value = "acme"
	if got := f.Set.Match(nil, "", d); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

// TestReadValues: what files and lists of values may have, and what is wrong with them, at its
// line.
func TestReadValues(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, "good.txt",
		"\ufeff# partners\nacme\r\n\n  globex\t# a comment\na#b\nbig-*\nacme\n")
	write(t, folder, "sub/networks.txt", "10.0.0.0/8\n10.0.0.1/8\n2001:db8::/32 # office\n10/8\n")
	write(t, folder, "stars.txt", "hunter2*hunter2\n\nhunter\xff\n")
	write(t, folder, "empty.txt", "# none yet\n")
	write(t, folder, "../out.txt", "x\n")
	for _, tt := range []struct{ when, want string }{
		{"{tenant: {file: good.txt}}", ""},
		{"{tenant: {file: empty.txt}}", ""},
		{"{tenant: {file: sub/networks.txt}}", ""}, // texts, since it is no address
		{"{tenant: {file: missing.txt}}", "limits.yaml:1:52: file: missing.txt: no such file"},
		{"{a: {file: missing.txt}, b: {file: missing.txt}}",
			"limits.yaml:1:47: file: missing.txt: no such file or directory\n" +
				"limits.yaml:1:71: file: missing.txt has problems"},
		{"{tenant: {file: ../out.txt}}", `limits.yaml:1:52: file: "../out.txt" is not below`},
		{"{tenant: {file: /etc/hostname}}", `limits.yaml:1:52: file: "/etc/hostname" is not below`},
		{"{tenant: {file: sub}}", "limits.yaml:1:52: file: sub: this is not a regular file"},
		{"{tenant: {fil: good.txt}}", `limits.yaml:1:46: unknown key "fil" in the value of tenant`},
		{"{tenant: {}}", "limits.yaml:1:45: the value of tenant has no file, as in {file: "},
		{"{tenant: {file: [a]}}", "limits.yaml:1:52: file is a text, not a list"},
		{"{tenant: []}", "limits.yaml:1:45: the value of tenant is an empty list"},
		{"{tenant: [a, [b]]}", "limits.yaml:1:49: the value of tenant is one value, not a list"},
		{"{tenant: [a, b*c]}", "limits.yaml:1:49: a * can only be the end of a value"},
		{"{client: {file: sub/networks.txt}}", "sub/networks.txt:2:1: write the network as " +
			"10.0.0.0/8\nsub/networks.txt:4:1: a network is such as"},
		{"{client: [10.0.0.0/8, 10.0.0.1/9]}", "limits.yaml:1:58: write the network as 10.0.0.0/9"},
		{"{tenant: {file: stars.txt}}", "stars.txt:1:1: a * can only be the end of a value\n" +
			"stars.txt:3:1: this is not UTF-8"},
	} {
		path := write(t, folder, "limits.yaml",
			"limits: [{name: a, max: 1/m, when: "+tt.when+"}]\n")
		_, err := Read(path)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.when, err)
			}
			continue
		}
		got := strings.ReplaceAll(fmt.Sprint(err), folder+"/", "")
		lines, want := strings.Split(got, "\n"), strings.Split(tt.want, "\n")
		if !slices.EqualFunc(lines, want, strings.HasPrefix) || strings.Contains(got, "hunter2") {
			t.Errorf("%s:\n%s\nwant\n%s", tt.when, got, tt.want)
		}
	}

	path := write(t, folder, "limits.yaml",
		"limits: [{name: a, max: 1/m, when: {tenant: {file: good.txt}}}]\n")
	f, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]int{"acme": 1, "globex": 1, "a#b": 1, "big-one": 1,
		"big": 0, "# partners": 0, "": 0, "globex ": 0, "a": 0} {
		if got := f.Set.Match(nil, "", entries("tenant", tenant)); len(got) != want {
			t.Errorf("%q is under %d limits, want %d", tenant, len(got), want)
		}
	}
	if !slices.Contains(f.Paths, folder+"/good.txt") {
		t.Errorf("the paths are %q", f.Paths)
	}
}

// TestReadBoundsValues: lists and files together have at most maxValues values.
func TestReadBoundsValues(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, "many.txt", strings.Repeat("a\n", maxValues-1))
	for list, wrong := range map[string]bool{"[b]": false, "[b, c]": true} {
		path := write(t, folder, "limits.yaml", "limits: [{name: a, max: 1/m, "+
			"when: {tenant: {file: many.txt}, plan: "+list+"}}]\n")
		_, err := Read(path)
		if (err != nil) != wrong || wrong && !strings.HasSuffix(err.Error(),
			": the lists and files have more than 1048576 values") {
			t.Errorf("%s: %v", list, err)
		}
	}
}

// TestFilesOfValuesAreNotLimits: whatever a file of values has, no limit becomes wrong by it, since
// others may write it.
func TestFilesOfValuesAreNotLimits(t *testing.T) {
	folder := t.TempDir()
	path := write(t, folder, "limits.yaml", `
limits:
- name: a
  when: {tenant: {file: partners.txt}}
  key: [tenant]
  max: 1/m
  except:
  - {when: {tenant: {file: big.txt}}, max: 3/m}
  - {when: {tenant: acme}, max: 2/m}
  by: {entry: tenant, globex: 4/m}
`)
	for _, big := range []string{"", "acme\n", "globex\nacme\n", "a*\n"} {
		for _, partners := range []string{"", "acme\n", "umbrella\nglobex\n", "*\n"} {
			write(t, folder, "big.txt", big)
			write(t, folder, "partners.txt", partners)
			if _, err := Read(path); err != nil {
				t.Errorf("%q, %q: %v", partners, big, err)
			}
		}
	}
}

// TestReachOfValues: rates of lists that no request gets are found.
func TestReachOfValues(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, "f.txt", "a\n")
	var many strings.Builder
	for i := range 2 * few {
		fmt.Fprintf(&many, ", {when: {x: [x%d, y%d]}, max: 9}", i, i)
	}
	for _, tt := range []struct{ limit, want string }{
		{"except: [{when: {client: 10.0.0.0/8}, max: 2}, {when: {client: 10.1.0.0/16}, max: 3}]",
			"never reached"},
		{"except: [{when: {client: 10.1.0.0/16}, max: 2}, {when: {client: 10.0.0.0/8}, max: 3}]",
			""},
		{"except: [{when: {t: [a, b*]}, max: 2}, {when: {t: bc}, max: 3}]", "never reached"},
		{"except: [{when: {t: [a, b*]}, max: 2}, {when: {t: [a, bc]}, max: 3}]",
			"never reached"},
		{"except: [{when: {t: [a, b*]}, max: 2}, {when: {t: [a, c]}, max: 3}]", ""},
		{"except: [{when: {t: a*}, max: 2}, {when: {t: [ab, ac]}, max: 3}]", "never reached"},
		{"except: [{when: {t: {file: f.txt}}, max: 2}, {when: {t: {file: f.txt}}, max: 3}]",
			"never reached"},
		{"key: [t], except: [{when: {t: '*'}, max: 2}]", "matches every request"},
		{"when: {t: [a, b]}, except: [{when: {t: c}, max: 2}]", "the limit is for t in [a, b]"},
		{"when: {t: [a, b]}, except: [{when: {t: [c, d*]}, max: 2}]", "matches no request"},
		{"when: {client: [10.0.0.0/8, 1.0.0.0/8]}, except: [{when: {client: 11.0.0.0/8}, max: 2}]",
			"matches no request"},
		{"when: {client: [10.0.0.0/8, 1.0.0.7]}, except: [{when: {client: 1.0.0.0/8}, max: 2}]",
			""},
		{"when: {t: [a, b]}, except: [{when: {t: [a, b, c]}, max: 2}]", "matches every request"},
		{"by: {entry: t, a: 4}, except: [{when: {t: [a, b]}, max: 2}]", "t=a is never reached"},
	} {
		for _, more := range []string{"", many.String()} { // one by one, and by the index
			limit := strings.Replace(tt.limit, "}]", "}"+more+"]", 1)
			path := write(t, folder, "limits.yaml",
				"limits: [{name: a, max: 1, algorithm: month, "+limit+"}]\n")
			_, err := Read(path)
			if tt.want == "" && err != nil || tt.want != "" &&
				(err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%s: %v, want %q", limit, err, tt.want)
			}
		}
	}
}
