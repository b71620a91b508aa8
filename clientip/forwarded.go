package clientip

import (
	"net/netip"
	"strings"
)

// lastElement is the lastOf of Forwarded. It finds the comma from the right: the client writes what
// is left of it, and can leave a quoted string open there.
func lastElement(line string) (addr netip.Addr, rest string, more bool) {
	quoted := false
	for i := len(line) - 1; i >= 0; i-- {
		switch {
		case line[i] == '"' && !escaped(line, i):
			quoted = !quoted
		case line[i] == ',' && !quoted:
			return forParameter(line[i+1:]), line[:i], true
		}
	}
	return forParameter(line), "", false
}

// escaped reports whether an odd number of backslashes precedes line[i].
func escaped(line string, i int) bool {
	before := line[:i]
	return (len(before)-len(strings.TrimRight(before, `\`)))%2 == 1
}

// forParameter returns the address of an element's only parameter "for". An element that is not
// well-formed has none.
func forParameter(element string) (addr netip.Addr) {
	found := false
	for more := true; more; {
		name, rest, ok := strings.Cut(element, "=")
		if !ok {
			return netip.Addr{}
		}
		var value string
		if value, element, more, ok = parameterValue(rest); !ok {
			return netip.Addr{}
		}
		if strings.EqualFold(strings.Trim(name, " \t"), "for") {
			if found {
				return netip.Addr{}
			}
			found, addr = true, parse(value)
		}
	}
	return addr
}

// parameterValue splits s behind a parameter's value, and reports whether another parameter
// follows. A value that ought to be quoted, such as an IPv6 address, need not be.
func parameterValue(s string) (value, rest string, more, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		value, rest, more = strings.Cut(s, ";")
		value = strings.TrimRight(value, " \t")
		return value, rest, more, !strings.ContainsAny(value, "\" \t\\")
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			value = unescape(s[1:i])
			rest = strings.TrimLeft(s[i+1:], " \t")
			if rest == "" {
				return value, "", false, true
			}
			rest, more = strings.CutPrefix(rest, ";")
			return value, rest, more, more
		}
	}
	return "", "", false, false
}

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		out = append(out, s[i])
	}
	return string(out)
}
