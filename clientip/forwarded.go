package clientip

import (
	"net/netip"
	"strings"
)

// lastElement is the lastOf of Forwarded. It searches for the comma from the right, because the
// client may have left a quoted string open further to the left.
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

// forParameter returns the address in the parameter "for" of an element. It returns the zero Addr
// if the element is not well-formed or has more than one "for".
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

// parameterValue splits s after the value of a parameter, and reports whether another parameter
// follows. It also accepts values that have to be quoted, such as an IPv6 address, without quotes.
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
