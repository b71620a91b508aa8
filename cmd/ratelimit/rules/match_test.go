package rules

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/paths"
	"github.com/truewindow/ratelimit/driver"
)

// naiveMatch looks at every limit, and says of each that applies its name, rate and key.
func naiveMatch(limits []*Limit, domain string, d Descriptor) []string {
	if _, ok := d.Value("domain"); !ok && domain != "" {
		d = append(slices.Clone(d), Entry{Name: "domain", Value: domain})
	}
	var found []string
	for _, l := range limits {
		if l.Domain != "" || !naiveAny(l.When, d) {
			continue
		}
		var key []string
		missing := false
		for _, name := range l.Key {
			_, ok := d.Value(name)
			key, missing = append(key, naiveValues(d, name).Key), missing || !ok
		}
		if !missing {
			found = append(found, fmt.Sprintf("%s%v %s", l.Name, naiveRate(l, d), Key(key...)))
		}
	}
	return found
}

// naiveValues returns what servers may see in an entry.
func naiveValues(d Descriptor, name string) paths.Readings {
	for _, e := range d {
		if e.Name != name {
			continue
		}
		if r := readings(e.Value); r != nil && (e.Path || name == "path") {
			return *r
		}
		return paths.Readings{Key: e.Value, List: []string{e.Value}, Strict: 1}
	}
	return paths.Readings{}
}

// readings is paths.Read.
var readings = func() func(string) *paths.Readings {
	read := make(map[string]*paths.Readings)
	return func(path string) *paths.Readings {
		if _, ok := read[path]; !ok {
			read[path] = paths.Read(path)
		}
		return read[path]
	}
}()

// naiveAny reports whether each condition matches one value of its entry.
func naiveAny(conditions []Condition, d Descriptor) bool {
	return !slices.ContainsFunc(conditions, func(c Condition) bool {
		values := naiveValues(d, c.Entry)
		return !values.Open && !slices.ContainsFunc(values.List, c.naive)
	})
}

// naiveEvery reports whether each condition matches all values of its entry that matter.
func naiveEvery(conditions []Condition, d Descriptor) bool {
	for _, c := range conditions {
		values := naiveValues(d, c.Entry)
		matching := 0
		for _, v := range values.List[:values.Strict] {
			if c.naive(v) {
				matching++
			}
		}
		if values.Open || matching == 0 || matching < values.Strict {
			return false
		}
	}
	return true
}

func (c Condition) naive(value string) bool {
	if c.Among != nil {
		return slices.ContainsFunc(listed[c.Among], func(pattern string) bool {
			return naivePattern(pattern, c.Entry, value)
		})
	}
	return c.Prefix && strings.HasPrefix(value, c.Pattern) || !c.Prefix && value == c.Pattern
}

// naiveRate returns the least of the rates that are possible: those of exceptions up to one that
// matches for sure, then those of plans, then that of the limit.
func naiveRate(l *Limit, d Descriptor) Rate {
	var possible []Rate
	least := func() Rate {
		return slices.MinFunc(possible,
			func(a, b Rate) int { return cmp.Compare(a.Units, b.Units) })
	}
	for _, e := range l.Except {
		if naiveAny(e.When, d) {
			possible = append(possible, e.Rate)
		}
		if naiveEvery(e.When, d) {
			return least()
		}
	}
	if l.By != nil {
		values := naiveValues(d, l.By.Entry)
		planned := 0
		for i, value := range values.List {
			if rate, ok := l.By.Rates[value]; ok {
				possible = append(possible, rate)
				if i < values.Strict {
					planned++
				}
			}
		}
		if planned == values.Strict && planned > 0 {
			return least()
		}
	}
	possible = append(possible, l.Rate)
	return least()
}

// entries returns a descriptor of names and values, in turn.
func entries(pairs ...string) (d Descriptor) {
	for i := 0; i < len(pairs); i += 2 {
		d = append(d, Entry{Name: pairs[i], Value: pairs[i+1]})
	}
	return d
}

func equals(entry, value string) Condition { return Condition{Entry: entry, Pattern: value} }

func starts(entry, text string) Condition {
	return Condition{Entry: entry, Pattern: text, Prefix: true}
}

func describe(matches []Match) []string {
	var found []string
	for _, m := range matches {
		found = append(found, fmt.Sprintf("%s%v %s", m.Limit.Name, m.Rate, m.Key))
	}
	return found
}

// tooMany is a path with more readings than are looked at.
const tooMany = `/a%2f..%2f..;x//b\..%255c%252f..%3f//a;%23//..`

// Names and values are few, so that conditions often match.
var (
	anyName  = rapid.SampledFrom([]string{"tenant", "path", "plan", "domain", "client"})
	anyValue = rapid.OneOf(rapid.StringMatching(`[ab/]{0,3}`),
		rapid.StringMatching(`/([ab]|/|\.\.|%2F|%61){0,3}`),
		rapid.SampledFrom([]string{"%", "%2F"}), rapid.SampledFrom(addresses))

	anyCondition = rapid.Custom(func(t *rapid.T) Condition {
		if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
			return anyList(t)
		}
		return Condition{Entry: anyName.Draw(t, "entry"), Pattern: anyValue.Draw(t, "pattern"),
			Prefix: rapid.Bool().Draw(t, "prefix")}
	})
	anyConditions  = rapid.SliceOfN(anyCondition, 0, 4)
	someConditions = rapid.SliceOfN(anyCondition, 1, 4)

	anyDescriptor = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Entry {
		e := Entry{anyName.Draw(t, "name"), anyValue.Draw(t, "value"),
			rapid.SampledFrom([]bool{false, false, true}).Draw(t, "is a path")}
		if rapid.IntRange(0, 19).Draw(t, "rarely") == 19 {
			e.Value = tooMany
		}
		return e
	}), 0, 5)
)

// anyLimits returns limits each of whose rates has its own units.
func anyLimits(t *rapid.T) []*Limit {
	units := int64(0)
	rate := func() Rate {
		units++
		return Rate{Units: units, Window: time.Minute}
	}
	var limits []*Limit
	for i := range rapid.IntRange(0, 5).Draw(t, "limits") * 10 {
		l := &Limit{
			Name: fmt.Sprint("limit", i), When: anyConditions.Draw(t, "when"),
			Key: rapid.SliceOfN(anyName, 0, 2).Draw(t, "key"), Rate: rate(),
		}
		exceptions := rapid.SampledFrom([]int{0, 1, 3, 40}).Draw(t, "exceptions")
		for range exceptions {
			when := someConditions.Draw(t, "except")
			if exceptions == 3 {
				when = anyConditions.Draw(t, "perhaps all")
			}
			l.Except = append(l.Except, Exception{When: when, Rate: rate()})
		}
		if rapid.Bool().Draw(t, "by") {
			l.By = &Plans{Entry: anyName.Draw(t, "entry"), Rates: make(map[string]Rate)}
			for _, value := range rapid.SliceOfN(anyValue, 0, 3).Draw(t, "plans") {
				l.By.Rates[value] = rate()
			}
		}
		limits = append(limits, l)
	}
	return limits
}

func TestMatchIsThatOfEveryLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := anyLimits(t)
		s := compile(t, limits, nil)
		for range 5 {
			d := Descriptor(anyDescriptor.Draw(t, "descriptor"))
			domain := rapid.SampledFrom([]string{"", "a", "b/"}).Draw(t, "domain")
			got, want := describe(s.Match(nil, domain, d)), naiveMatch(limits, domain, d)
			if !slices.Equal(got, want) {
				t.Fatalf("%v in %q: got\n%q, want\n%q", d, domain, got, want)
			}
			for _, l := range limits {
				apart := l.Mismatch(domain, d) != ""
				if apart == strings.Contains(strings.Join(got, " "), l.Name+"{") {
					t.Fatalf("%v in %q: %s says %q, and these apply: %q", d, domain, l.Name,
						l.Mismatch(domain, d), got)
				}
			}
		}
	})
}

// compile compiles limits that may be unreachable.
func compile(t interface{ Fatal(...any) }, limits []*Limit, tree Tree) *Set {
	var problems Problems
	s := newSet(limits, tree, &problems)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return s
}

// oneLimit is a tree that finds one limit.
type oneLimit struct {
	limit *Limit
	key   string
}

func (o oneLimit) Find(domain string, d Descriptor) (*Limit, string, bool) {
	_, ok := d.Value("generic_key")
	return o.limit, o.key, ok && domain == o.limit.Domain
}

func TestMatchOfATree(t *testing.T) {
	perMinute := func(n int64) Rate { return Rate{Units: n, Window: time.Minute} }
	limits := []*Limit{
		{Name: "first", Rate: perMinute(1)},
		{Name: "tree", Domain: "edge", Rate: perMinute(2), Except: []Exception{
			{When: []Condition{equals("generic_key", "big")}, Rate: perMinute(3)}}},
		{Name: "unseen", Domain: "edge", Rate: perMinute(4)},
		{Name: "last", When: []Condition{equals("domain", "edge")}, Rate: perMinute(5)},
	}
	s := compile(t, limits, oneLimit{limits[1], "of the tree"})
	tests := []struct {
		domain, value string
		want          []string
	}{
		{"edge", "small", []string{"first 1 %*", "tree 2 of the tree", "last 5 %*"}},
		{"edge", "big", []string{"first 1 %*", "tree 3 of the tree", "last 5 %*"}},
		{"other", "big", []string{"first 1 %*"}},
		{"", "big", []string{"first 1 %*"}},
	}
	for _, test := range tests {
		var got []string
		for _, m := range s.Match(nil, test.domain, entries("generic_key", test.value)) {
			got = append(got, fmt.Sprint(m.Limit.Name, " ", m.Rate.Units, " ", m.Key))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s in %q: got %q, want %q", test.value, test.domain, got, test.want)
		}
	}
}

func TestMatchAppendsAndIsSafe(t *testing.T) {
	limits := []*Limit{
		{Name: "a", Key: []string{"tenant"}, Rate: Rate{Units: 1, Window: time.Minute}},
		{Name: "b", Key: []string{"tenant", "user"}, Rate: Rate{Units: 1, Window: time.Minute}},
	}
	s := compile(t, limits, nil)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			tenant := fmt.Sprint("t", i)
			first := Match{Key: "first"}
			for range 1000 {
				got := s.Match([]Match{first}, "", entries("tenant", tenant, "user", "u"))
				if len(got) != 3 || got[0] != first || got[1].Key != tenant ||
					got[2].Key != tenant+"/u" {
					t.Errorf("%s got %v", tenant, got)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestVariants(t *testing.T) {
	minute := Rate{Units: 1, Window: time.Minute}
	l := &Limit{Name: "a", Rate: Rate{}, Except: []Exception{
		{When: []Condition{starts("path", "/x"), equals("tenant", "acme")}, Rate: minute},
		{When: []Condition{equals("tenant", "free")}, Rate: Rate{Unlimited: true}},
	}, By: &Plans{Entry: "plan", Rates: map[string]Rate{"z": minute, "pro": minute}}}
	s := compile(t, []*Limit{l}, nil)
	want := []string{"max", "by plan=pro", "by plan=z", "except path=/x*, tenant=acme",
		"except tenant=free"}
	for i, v := range s.Variants() {
		if v.Why != want[i] || v.Number != i || v.Limit != l {
			t.Errorf("variant %d is %+v, want %q", i, v, want[i])
		}
		none := v.Rate.Unlimited || v.Rate.Units == 0
		if none != (v.Algorithm == nil) || !none && v.Algorithm.Limit().Name != "a" {
			t.Errorf("%s has the algorithm %v", v.Why, v.Algorithm)
		}
	}
	if len(s.Variants()) != len(want) {
		t.Errorf("got %d variants, want %d", len(s.Variants()), len(want))
	}
	m, err := s.Override(Match{s.Variants()[0], "k"}, minute)
	if err != nil || m.Number != -1 || m.Key != "k" || m.Algorithm.Limit().Max != 1 {
		t.Errorf("override: %+v, %v", m, err)
	}
	if _, err := s.Override(m, Rate{Units: -1, Window: time.Minute}); !errors.Is(err,
		driver.ErrInvalid) {
		t.Errorf("an override of -1 units: %v, want ErrInvalid", err)
	}
}

// compared returns with how many rules a request is compared.
func compared(x *index, r *request) int {
	n := len(x.rules)
	for _, entry := range r.present {
		f := x.fields[entry]
		if f == nil {
			continue
		}
		value := r.values[entry]
		if under := f.exact[value]; under != nil {
			n += compared(under, r)
		}
		for i := f.prefixes.find(value); i >= 0; i = f.prefixes[i].shorter {
			n += compared(f.prefixes[i].under, r)
		}
	}
	return n
}

func TestMatchComparesFewRules(t *testing.T) {
	limits, d := manyLimits(10_000)
	s := compile(t, limits, nil)
	r := newRequest(len(s.names))
	r.read(s, "", d)
	if n := compared(s.index, r); n > 25 {
		t.Errorf("a request to which 20 limits apply is compared with %d", n)
	}
	limits = []*Limit{{Name: "a", Key: []string{"c"}, Rate: Rate{Units: 1, Window: time.Minute}}}
	for i := range 10_000 {
		when := []Condition{
			equals("a", fmt.Sprint(i%22)), starts("b", fmt.Sprint(i/22%22)),
			equals("c", fmt.Sprint(i/22/22)),
		}
		limits[0].Except = append(limits[0].Except, Exception{When: when, Rate: limits[0].Rate})
	}
	s = compile(t, limits, nil)
	r = newRequest(len(s.names))
	r.read(s, "", entries("a", "7", "b", "21", "c", "13"))
	if n := compared(s.compiled[0].except, r); n > 5 {
		t.Errorf("a request is compared with %d exceptions", n)
	}
}
