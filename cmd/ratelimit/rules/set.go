package rules

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// A Tree finds the limit of an Envoy file that applies to a request: one of the limits of the Set,
// whose Domain is not empty, and the key of the store. It is safe for concurrent use.
type Tree interface {
	Find(domain string, d Descriptor) (limit *Limit, key string, found bool)
}

// A Match is a limit that applies to a request.
type Match struct {
	*Variant
	Key string // of the store: the values of Limit.Key
}

// A Set is the limits of the service, compiled. It does not change, and is safe for concurrent use.
type Set struct {
	limits   []*Limit
	variants []*Variant
	compiled []compiled // by the index of the limit
	index    *index
	byName   map[string]int // indices of the limits
	names    names
	members  []*members // by the number of an entry; nil for one without Values
	tree     Tree
	numbers  map[*Limit]int // indices of the limits that the tree finds
	requests sync.Pool      // of *request
}

// compiled is a limit whose entries have numbers.
type compiled struct {
	key    []int
	max    *Variant
	entry  int // of by
	by     map[string]*Variant
	except *index
	others []*Variant    // of except
	when   [][]condition // of except
	until  []time.Time   // of except; nil if none ends
}

// Compile returns the limits as a Set. A limit with a Domain applies only if tree finds it; tree
// may be nil if there is none. The limits must not change afterwards. An error is of type
// [Problems].
func Compile(limits []*Limit, tree Tree) (*Set, error) {
	problems := checkNames(limits)
	s := newSet(limits, tree, &problems)
	s.checkReach(&problems)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// newSet appends what is wrong with each limit by itself to problems.
func newSet(limits []*Limit, tree Tree, problems *Problems) *Set {
	s := &Set{
		limits: slices.Clone(limits), compiled: make([]compiled, len(limits)), names: make(names),
		byName: make(map[string]int), tree: tree, numbers: make(map[*Limit]int),
	}
	var rules []rule
	for i, l := range limits {
		if wrong := checkLimit(l); wrong != nil {
			*problems = append(*problems, wrong...)
			continue
		}
		s.compiled[i] = s.compile(l, problems)
		s.byName[l.Name] = i
		switch {
		case l.Domain != "":
			s.numbers[l] = i
		case !l.ByName:
			rules = append(rules, rule{i, s.conditions(l)})
		}
	}
	s.index, s.members = newIndex(rules), s.names.members(s.limits)
	s.requests.New = func() any { return newRequest(len(s.names)) }
	return s
}

// conditions returns those of When, and that every entry of Key is there.
func (s *Set) conditions(l *Limit) []condition {
	conditions := s.names.conditions(l.When)
	for _, name := range l.Key {
		if !slices.ContainsFunc(l.When, func(c Condition) bool { return c.Entry == name }) {
			conditions = append(conditions, condition{entry: s.names.number(name), prefix: true})
		}
	}
	return conditions
}

func (s *Set) compile(l *Limit, problems *Problems) compiled {
	debt := l.debt()
	add := func(rate Rate, at Position, why string) *Variant {
		v, err := newVariant(l, rate, debt, why)
		if err != nil {
			*problems = append(*problems,
				Problem{At: at, Text: fmt.Sprintf("%s: %s", why, textOf(err))})
			return nil
		}
		v.Number = len(s.variants)
		s.variants = append(s.variants, v)
		return v
	}
	first := len(s.variants)
	defer func() { settleAll(s.variants[first:]) }()
	c := compiled{max: add(l.Rate, l.At, "max")}
	for _, name := range l.Key {
		c.key = append(c.key, s.names.number(name))
	}
	if l.By != nil {
		c.entry, c.by = s.names.number(l.By.Entry), make(map[string]*Variant, len(l.By.Rates))
		for _, value := range slices.Sorted(maps.Keys(l.By.Rates)) {
			why := "by " + Condition{Entry: l.By.Entry, Pattern: value}.String()
			c.by[value] = add(l.By.Rates[value], l.By.At, why)
		}
	}
	if len(l.Except) == 0 {
		return c
	}
	rules := make([]rule, len(l.Except))
	for i, e := range l.Except {
		v := add(e.Rate, e.At, "except "+e.String())
		if v != nil {
			v.Until, v.At = e.Until, e.At
		}
		c.others = append(c.others, v)
		rules[i] = rule{i, s.names.conditions(e.When)}
		c.when = append(c.when, rules[i].conditions)
	}
	c.except, c.until = newIndex(rules), ends(l.Except)
	return c
}

// variant returns the rate of a request.
func (c *compiled) variant(r *request) *Variant {
	if r.several {
		return c.lowest(r)
	}
	if c.except != nil {
		r.except = c.current(c.except.appendMatches(r.except[:0], r))
		if len(r.except) > 0 {
			return c.others[slices.Min(r.except)]
		}
	}
	if c.by != nil {
		if v := c.by[r.values[c.entry]]; v != nil && r.has[c.entry] {
			return v
		}
	}
	return c.max
}

// lowest returns the lowest of the rates that a request may have, by what servers see in its path.
func (c *compiled) lowest(r *request) *Variant {
	var low *Variant
	may := func(v *Variant) {
		if low == nil || v.Rate.Less(low.Rate) {
			low = v
		}
	}
	if c.except != nil {
		r.except = c.current(c.except.appendMatches(r.except[:0], r))
		slices.Sort(r.except)
		for _, i := range r.except {
			may(c.others[i])
			if surelyAll(c.when[i], r) {
				return low
			}
		}
	}
	if c.by == nil || !r.has[c.entry] || !c.plans(r, may) {
		may(c.max)
	}
	return low
}

// plans calls may with the rates of by that a request may have, and reports whether it has one of
// them for sure.
func (c *compiled) plans(r *request, may func(*Variant)) (sure bool) {
	readings := r.readings[c.entry]
	switch {
	case readings == nil:
		v := c.by[r.values[c.entry]]
		if v != nil {
			may(v)
		}
		return v != nil
	case readings.Open:
		for _, v := range c.by {
			may(v)
		}
		return false
	}
	sure = true
	for i, value := range readings.List {
		if v := c.by[value]; v != nil {
			may(v)
		} else if i < readings.Strict {
			sure = false
		}
	}
	return sure
}

// Limits returns the limits in the order of Compile. They must not be changed.
func (s *Set) Limits() []*Limit { return s.limits }

// Uses reports whether a limit looks at an entry: in a condition, in its key, or in by.
func (s *Set) Uses(entry string) bool {
	_, ok := s.names[entry]
	return ok
}

// Variants returns the variants by their Number. They must not be changed.
func (s *Set) Variants() []*Variant { return s.variants }

// Match appends the limits that apply to a request, in the order of Compile. A limit without a
// Domain sees that of the request, unless it is empty, as an entry named domain, which an entry of
// the descriptor overrides. A key may share the memory of a value of the descriptor.
//
// Exceptions whose Until has come do not match.
//
// Match does not look at Limit.Replaces, which is about all descriptors of a request.
func (s *Set) Match(dst []Match, domain string, d Descriptor) []Match {
	r := s.requests.Get().(*request)
	r.read(s, domain, d)
	r.found = s.index.appendMatches(r.found[:0], r)
	inTree, key := s.find(domain, d)
	if inTree >= 0 {
		r.found = append(r.found, inTree)
	}
	slices.Sort(r.found)
	for _, i := range r.found {
		c := &s.compiled[i]
		m := Match{Variant: c.variant(r), Key: key}
		if i != inTree {
			m.Key = r.keyOf(c.key)
		}
		dst = append(dst, m)
	}
	r.clear()
	s.requests.Put(r)
	return dst
}

// find returns the index of the limit that the tree finds, or -1.
func (s *Set) find(domain string, d Descriptor) (limit int, key string) {
	if s.tree != nil && domain != "" {
		if l, key, found := s.tree.Find(domain, d); found {
			if i, ok := s.numbers[l]; ok {
				return i, key
			}
		}
	}
	return -1, ""
}

// Override returns m with another rate on the same history. Its Number is -1. An error wraps
// [driver.ErrInvalid].
func (s *Set) Override(m Match, rate Rate) (Match, error) {
	// The file does not know this Window.
	v, err := newVariant(m.Limit, rate, max(m.Limit.debt(), rate.Window), "override")
	if err != nil {
		return Match{}, err
	}
	return Match{v, m.Key}, nil
}
