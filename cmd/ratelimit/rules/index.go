package rules

// An index finds the rules whose conditions all match a request, which are limits or the exceptions
// of one. A rule is under that of its conditions which is the most selective, so a request comes by
// few of those that do not match it.
type index struct {
	fields map[int]*field // by the number of an entry
	always []int          // rules without conditions
	rules  [][]condition
}

// A field has the rules that are under a condition on one entry.
type field struct {
	exact    map[string][]int
	prefixes prefixes
}

// newIndex returns the index of those rules whose numbers are in indexed, which ascends.
func newIndex(rules [][]condition, indexed []int) index {
	x := index{fields: make(map[int]*field), rules: rules}
	counts := make(map[condition]int)
	for _, i := range indexed {
		for _, c := range rules[i] {
			counts[c]++
		}
	}
	begins := make(map[int]map[string][]int)
	for _, i := range indexed {
		if len(rules[i]) == 0 {
			x.always = append(x.always, i)
			continue
		}
		x.add(mostSelective(rules[i], counts), i, begins)
	}
	for entry, texts := range begins {
		x.fields[entry].prefixes = newPrefixes(texts)
	}
	return x
}

func (x *index) add(c condition, rule int, begins map[int]map[string][]int) {
	f := x.fields[c.entry]
	if f == nil {
		f = &field{exact: make(map[string][]int)}
		x.fields[c.entry] = f
	}
	if !c.prefix {
		f.exact[c.pattern] = append(f.exact[c.pattern], rule)
		return
	}
	if begins[c.entry] == nil {
		begins[c.entry] = make(map[string][]int)
	}
	begins[c.entry][c.pattern] = append(begins[c.entry][c.pattern], rule)
}

// mostSelective returns the condition with the least weight, and of equal ones the first.
func mostSelective(conditions []condition, counts map[condition]int) condition {
	best, least := conditions[0], 0
	for i, c := range conditions {
		if w := weight(c) * counts[c]; i == 0 || w < least {
			best, least = c, w
		}
	}
	return best
}

// weight says how many requests a condition is expected to match, against an exact one.
func weight(c condition) int {
	switch {
	case !c.prefix:
		return 1
	case c.pattern != "":
		return 8
	default:
		return 1000
	}
}

// appendMatches appends the numbers of the rules that match, in no order. It must not be called with
// r.candidates.
func (x *index) appendMatches(dst []int, r *request) []int {
	dst = append(dst, x.always...)
	r.candidates = x.appendCandidates(r.candidates[:0], r)
	for _, i := range r.candidates {
		if matchAll(x.rules[i], r) {
			dst = append(dst, i)
		}
	}
	return dst
}

// first returns the least number of a rule that matches.
func (x *index) first(r *request) (rule int, ok bool) {
	rule = len(x.rules)
	if len(x.always) > 0 {
		rule = x.always[0]
	}
	r.candidates = x.appendCandidates(r.candidates[:0], r)
	for _, i := range r.candidates {
		if i < rule && matchAll(x.rules[i], r) {
			rule = i
		}
	}
	return rule, rule < len(x.rules)
}

func (x *index) appendCandidates(dst []int, r *request) []int {
	for _, entry := range r.present {
		f := x.fields[entry]
		if f == nil {
			continue
		}
		value := r.values[entry]
		dst = append(dst, f.exact[value]...)
		dst = f.prefixes.appendRules(dst, value)
	}
	return dst
}
