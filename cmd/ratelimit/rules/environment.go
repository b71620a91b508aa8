package rules

import (
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// expand returns a text in which each ${NAME} is replaced by the variable of the environment.
func (f *file) expand(n *yaml.Node, what string) Text {
	if n == nil {
		return Text{}
	}
	rest, ok := f.text(n, what)
	if !ok {
		return Text{}
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(rest, "${")
		b.WriteString(before)
		if !found {
			return Text{b.String(), f.At(n)}
		}
		name, next, closed := strings.Cut(after, "}")
		value, set := os.LookupEnv(name)
		switch {
		case !closed || !isVariable(name):
			f.Add(n, "%s: ${ begins a variable of the environment, as in ${NAME}", what)
			return Text{}
		case !set:
			f.Add(n, "%s: the environment has no variable %s", what, name)
			return Text{}
		}
		b.WriteString(value)
		rest = next
	}
}

func isVariable(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}
