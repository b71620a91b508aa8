package rules

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxValues bounds the values of all lists and files together.
const maxValues = 1 << 20

// An element is one value of a condition.
type element struct {
	text    string
	prefix  bool
	network netip.Prefix // if valid, in place of text
}

var errStar = errors.New("a * can only be the end of a value")

// elementOf reads a value of a condition on an entry.
func elementOf(text, entry string) (element, error) {
	if slices.Contains(networkEntries, entry) {
		n, problem, meant := network(text)
		switch {
		case problem != "":
			return element{}, errors.New(problem)
		case meant:
			return element{network: n}, nil
		}
	}
	text, prefix := strings.CutSuffix(text, "*")
	if strings.Contains(text, "*") {
		return element{}, errStar
	}
	return element{text: text, prefix: prefix}, nil
}

// values makes Values of elements.
func values(elements []element, file string) *Values {
	exact := make([]string, 0, len(elements))
	var prefixes []string
	var networks []netip.Prefix
	for _, e := range elements {
		switch {
		case e.network.IsValid():
			networks = append(networks, e.network)
		case e.prefix:
			prefixes = append(prefixes, e.text)
		default:
			exact = append(exact, e.text)
		}
	}
	return newValues(exact, prefixes, networks, file)
}

// condition reads what an entry has to be: a value, a list of them, or a file with them.
func (f *file) condition(key, value *yaml.Node) (c Condition, ok bool) {
	what := "the value of " + plain(key.Value)
	c.Entry = key.Value
	switch value.Kind {
	case yaml.MappingNode:
		c.Among = f.valuesFile(value, what, key.Value)
		return c, c.Among != nil
	case yaml.SequenceNode:
		return f.list(value, what, key.Value)
	}
	e, ok := f.element(value, what, key.Value)
	return e.condition(key.Value), ok
}

func (e element) condition(entry string) Condition {
	if e.network.IsValid() {
		return Condition{Entry: entry, Among: values([]element{e}, "")}
	}
	return Condition{Entry: entry, Pattern: e.text, Prefix: e.prefix}
}

func (f *file) element(n *yaml.Node, what, entry string) (e element, ok bool) {
	text, ok := f.scalar(n, what)
	if !ok {
		return e, false
	}
	e, err := elementOf(text, entry)
	if err != nil {
		f.Add(n, "%v", err)
	}
	return e, err == nil
}

func (f *file) list(n *yaml.Node, what, entry string) (c Condition, ok bool) {
	if len(n.Content) == 0 {
		f.Add(n, "%s is an empty list", what)
		return c, false
	}
	if !f.reader.spend(len(n.Content)) {
		f.Add(n, "the lists and files have more than %d values", maxValues)
		return c, false
	}
	elements := make([]element, 0, len(n.Content))
	for _, child := range n.Content {
		if e, ok := f.element(child, what, entry); ok {
			elements = append(elements, e)
		}
	}
	switch {
	case len(elements) < len(n.Content):
		return c, false
	case len(elements) == 1:
		return elements[0].condition(entry), true
	}
	return Condition{Entry: entry, Among: values(elements, "")}, true
}

// spend counts values, and reports whether there are not too many.
func (r *reader) spend(n int) bool {
	r.values += n
	return r.values <= maxValues
}
