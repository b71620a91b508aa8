package rules

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/clientip"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/paths"
)

// ForwardedEntries are the entries of every request at /v1/check.
var ForwardedEntries = []string{clientEntry, "method", "host", pathEntry}

// Unmatched returns what no request at /v1/check matches, since its entries client, method, host
// and path have other values. A request that brings its own descriptor may match it.
func (l *Limit) Unmatched() (problems Problems) {
	check := func(at Position, c Condition, rate Rate) {
		for c := range c.each() {
			if why := c.unmatched(l.Rate.Less(rate)); why != "" {
				problems = append(problems, Problem{At: at, Text: fmt.Sprintf(
					"%q is for %v, which no request at /v1/check has: %s", l.Name, c, why)})
				return // a list may have thousands
			}
		}
	}
	for _, c := range l.When {
		check(l.At, c, l.Rate)
	}
	for _, e := range l.Except {
		for _, c := range e.When {
			check(e.At, c, e.Rate)
		}
	}
	if l.By != nil {
		for _, value := range slices.Sorted(maps.Keys(l.By.Rates)) {
			check(l.By.At, Condition{Entry: l.By.Entry, Pattern: value}, l.By.Rates[value])
		}
	}
	return problems
}

// each calls yield with c or, if c is Among values, with a condition for each of them.
func (c Condition) each() func(yield func(Condition) bool) {
	if c.Among != nil {
		return c.Among.conditions(c.Entry)
	}
	return func(yield func(Condition) bool) { yield(c) }
}

// unmatched says why a condition matches no request at /v1/check, or nothing. Higher means that the
// condition is for a rate above that of its limit.
func (c Condition) unmatched(higher bool) string {
	if !slices.Contains(ForwardedEntries, c.Entry) || c.Pattern == "" && c.Prefix {
		return ""
	}
	var why, write string
	switch c.Entry {
	case clientEntry:
		why, write = "an address has one spelling, and one of IPv6 is its network", c.client()
	case "method":
		why, write = "methods are in upper case", strings.ToUpper(c.Pattern)
		if strings.ContainsAny(write, " ,;|/") {
			return "a request has one method"
		}
	case "host":
		why, write = "hosts are in lower case and ASCII, without a scheme, a port and a final dot",
			c.host()
	case pathEntry:
		return c.path(higher)
	}
	switch {
	case c.Pattern == "":
		return "an entry without a value is left out"
	case write == c.Pattern:
		return ""
	}
	return why + ": write " + Condition{Pattern: write, Prefix: c.Prefix}.pattern()
}

// client returns how the entry client has what looks like an address.
func (c Condition) client() string {
	if c.Prefix {
		if !strings.Contains(c.Pattern, ":") {
			return c.Pattern
		}
		groups := strings.Split(strings.ToLower(c.Pattern), ":")
		for i, g := range groups[:len(groups)-1] { // the last one may go on
			if g != "" {
				groups[i] = cmp.Or(strings.TrimLeft(g, "0"), "0")
			}
		}
		return strings.Join(groups, ":")
	}
	if n, err := netip.ParsePrefix(c.Pattern); err == nil && n.Addr().Is6() {
		bits := min(n.Bits(), clientip.DefaultIPv6Prefix) // of a narrower one no client is
		return netip.PrefixFrom(n.Addr(), bits).Masked().String()
	}
	text := strings.TrimSuffix(strings.TrimPrefix(c.Pattern, "["), "]")
	addr, err := netip.ParseAddr(text)
	if withPort, portErr := netip.ParseAddrPort(c.Pattern); err != nil && portErr == nil {
		addr, err = withPort.Addr(), nil
	}
	switch {
	case err == nil:
		return clientip.AddrKey(addr, clientip.DefaultIPv6Prefix)
	case strings.Trim(c.Pattern, "0123456789., -") == "":
		return "192.0.2.7" // for what is a part of an address, or several
	}
	return c.Pattern
}

// host returns how the entry host has a host.
func (c Condition) host() string {
	host := strings.ToLower(c.Pattern)
	if _, after, ok := strings.Cut(host, "://"); ok {
		host = after
	}
	host, _, _ = strings.Cut(host, "/")
	if inside, ok := strings.CutPrefix(host, "["); ok {
		host, _, _ = strings.Cut(inside, "]")
	} else if name, _, ok := strings.Cut(host, ":"); ok && strings.Count(host, ":") == 1 {
		host = name
	}
	if !c.Prefix {
		host = strings.TrimSuffix(host, ".")
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r >= 0x80 }) {
		return "xn--…"
	}
	return host
}

// path says why no server reads a path so, or nothing.
func (c Condition) path(higher bool) string {
	write := func(path string) string {
		return Condition{Pattern: path, Prefix: c.Prefix}.pattern()
	}
	switch before, _, query := strings.Cut(c.Pattern, "?"); {
	case c.Pattern == "" || c.Pattern[0] != '/':
		return "a path begins with a slash: write " + write(cmp.Or(paths.Of(c.Pattern), "/"))
	case query:
		return "a path has no query: write " + write(before)
	}
	const more = "x" // a beginning does not end with a segment
	whole := c.Pattern
	if c.Prefix {
		whole += more
	}
	readings := paths.Read(whole)
	if readings == nil {
		return ""
	}
	canonical := readings.Key
	if c.Prefix {
		canonical = strings.TrimSuffix(canonical, more)
	}
	slashes := strings.Contains(strings.ToLower(c.Pattern), "%2f")
	switch {
	case slashes && higher:
		before, _, _ := strings.Cut(c.Pattern, "%")
		return "servers read %2F in several ways, and a higher rate needs what all of them read: " +
			"write " + Condition{Pattern: before, Prefix: true}.pattern()
	case slashes || canonical == c.Pattern:
		return ""
	}
	return "a path is decoded and without dots, double slashes and parameters: write " +
		write(canonical)
}
