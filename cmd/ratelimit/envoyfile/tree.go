package envoyfile

import (
	"bytes"
	"strings"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// A node is a descriptor of a file, or a domain.
type node struct {
	key      string           // of the descriptor, as the file has it
	shared   string           // the pattern, if all that it matches have one history, or empty
	limit    *rules.Limit     // or nil
	children map[string]*node // by key_value, or by the key of a descriptor without a value
	patterns []pattern        // of the children with an asterisk, in the order of the file
}

// A pattern is a key_value with asterisks, each of which stands for any bytes.
type pattern struct {
	parts [][]byte // what is between the asterisks: two or more
	node  *node
}

// appendComposite appends the text by which envoyproxy/ratelimit looks up an entry. It is ambiguous
// if names have underscores. Files rely on it, so matching keeps it.
func appendComposite(dst []byte, name, value string) []byte {
	dst = append(dst, name...)
	dst = append(dst, '_')
	return append(dst, value...)
}

// add makes child a child of n. It returns false if n has one with this composite already.
func (n *node) add(composite string, child *node) bool {
	if n.children[composite] != nil {
		return false
	}
	if n.children == nil {
		n.children = make(map[string]*node)
	}
	n.children[composite] = child
	if strings.Contains(composite, "*") {
		parts := bytes.Split([]byte(composite), []byte("*"))
		n.patterns = append(n.patterns, pattern{parts, child})
	}
	return true
}

// next returns the child to which an entry leads, or nil, and whether its pattern matches.
func (n *node) next(composite []byte, name string) (child *node, byPattern bool) {
	if child := n.children[string(composite)]; child != nil {
		return child, false
	}
	for i := range n.patterns {
		if n.patterns[i].matches(composite) {
			return n.patterns[i].node, true
		}
	}
	return n.children[name], false
}

// matches reports whether s is the parts in their order, with any bytes between them.
func (p *pattern) matches(s []byte) bool {
	first, last := p.parts[0], p.parts[len(p.parts)-1]
	if len(s) < len(first)+len(last) || !bytes.HasPrefix(s, first) || !bytes.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, part := range p.parts[1 : len(p.parts)-1] {
		i := bytes.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}
