package rules

import (
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/paths"
)

// String returns the condition as it is written on a command line, such as tenant=acme or
// path=/v1/*, or shortly what it is among, such as tenant in partners.txt or client in 3 networks.
func (c Condition) String() string {
	if c.Among != nil {
		return plain(c.Entry) + " " + c.pattern()
	}
	return plain(c.Entry) + "=" + c.pattern()
}

// pattern returns what a value has to be, in the form of a file.
func (c Condition) pattern() string {
	if c.Among != nil {
		return "in " + c.Among.String()
	}
	if c.Prefix {
		return plain(c.Pattern + "*")
	}
	return plain(c.Pattern)
}

// matches reports whether c matches a value that e may have.
func (c Condition) matches(e *Entry) bool {
	return condition{0, c.Pattern, c.Prefix, c.Among}.matchesAny(e.Value, e.readings())
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
	among   *Values
}

func (c condition) matches(r *request) bool {
	switch value := r.values[c.entry]; {
	case !r.has[c.entry]:
		return false
	case r.several:
		return c.matchesAny(value, r.readings[c.entry])
	case c.among != nil:
		return slices.Contains(r.sets[c.entry], c.among)
	case c.prefix:
		return strings.HasPrefix(value, c.pattern)
	default:
		return value == c.pattern
	}
}

// surely reports whether c matches a request whatever a server sees in its path.
func (c condition) surely(r *request) bool {
	readings := r.readings[c.entry]
	if readings == nil {
		return c.matches(r)
	}
	return !readings.Open && !slices.ContainsFunc(readings.List[:readings.Strict],
		func(value string) bool { return !c.matchesValue(value) })
}

// matchesAny reports whether c matches one of readings or, if they are nil, a value.
func (c condition) matchesAny(value string, readings *paths.Readings) bool {
	if readings == nil {
		return c.matchesValue(value)
	}
	return readings.Open || slices.ContainsFunc(readings.List, c.matchesValue)
}

func (c condition) matchesValue(value string) bool {
	switch {
	case c.among != nil:
		return c.among.has(value)
	case c.prefix:
		return strings.HasPrefix(value, c.pattern)
	}
	return value == c.pattern
}

func matchAll(conditions []condition, r *request) bool {
	for _, c := range conditions {
		if !c.matches(r) {
			return false
		}
	}
	return true
}

// surelyAll is matchAll whatever a server sees in the path of a request.
func surelyAll(conditions []condition, r *request) bool {
	return !slices.ContainsFunc(conditions, func(c condition) bool { return !c.surely(r) })
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
		numbered[i] = condition{n.number(c.Entry), c.Pattern, c.Prefix, c.Among}
	}
	return numbered
}
