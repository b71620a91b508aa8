package rules

import "strings"

// String returns the condition as it is written on a command line, such as tenant=acme or
// path=/v1/*.
func (c Condition) String() string {
	return plain(c.Entry) + "=" + c.pattern()
}

// pattern returns what a value has to be, in the form of a file.
func (c Condition) pattern() string {
	if c.Prefix {
		return plain(c.Pattern + "*")
	}
	return plain(c.Pattern)
}

func (c Condition) matches(value string) bool {
	if c.Prefix {
		return strings.HasPrefix(value, c.Pattern)
	}
	return value == c.Pattern
}

// join returns conditions as text, or "all" if there are none.
func join(conditions []Condition) string {
	if len(conditions) == 0 {
		return "all"
	}
	texts := make([]string, len(conditions))
	for i, c := range conditions {
		texts[i] = c.String()
	}
	return strings.Join(texts, ", ")
}

// A condition is a Condition whose entry has a number.
type condition struct {
	entry   int
	pattern string
	prefix  bool
}

func (c condition) matches(r *request) bool {
	value, ok := r.value(c.entry)
	switch {
	case !ok:
		return false
	case c.prefix:
		return strings.HasPrefix(value, c.pattern)
	default:
		return value == c.pattern
	}
}

func matchAll(conditions []condition, r *request) bool {
	for _, c := range conditions {
		if !c.matches(r) {
			return false
		}
	}
	return true
}

// names numbers the entries that limits look at.
type names map[string]int

func (n names) number(name string) int {
	i, ok := n[name]
	if !ok {
		i = len(n)
		n[name] = i
	}
	return i
}

func (n names) conditions(conditions []Condition) []condition {
	numbered := make([]condition, len(conditions))
	for i, c := range conditions {
		numbered[i] = condition{n.number(c.Entry), c.Pattern, c.Prefix}
	}
	return numbered
}
