package backend

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
)

// A URL names a store and has its parameters. It is written in one of the forms
//
//	scheme[:path][?name=value&…]
//	scheme://[[user]:password@][host[:port][,host[:port]…]][/path][?name=value&…]
//
// Any character may be percent-encoded. @ and # must be, and whatever would end the part that it is
// in, such as / and ? in a password, and & in the value of a parameter. + is a plus sign.
//
// An [Opener] asks for each parameter that it knows, and then calls Check. A URL is not safe for
// concurrent use.
type URL struct {
	Scheme   string   // in lower case
	Username string   // empty if there is none
	Hosts    []string // each as host or host:port, addresses of IPv6 in brackets
	Path     string   // with its slash, if there is one

	password string // unexported, so that no formatting verb and no encoder prints it by accident
	params   []param
	wrong    []string // parameters, and why
}

type param struct {
	name, value string
	known       bool // the opener has asked for it
}

// ParseURL parses a URL. An error wraps [ratelimit.ErrInvalidOptions] and quotes nothing of the
// URL: a password with unencoded characters could be any part of it.
func ParseURL(raw string) (*URL, error) {
	scheme, rest := raw, ""
	if i := strings.IndexAny(raw, ":?"); i >= 0 {
		scheme, rest = raw[:i], strings.TrimPrefix(raw[i:], ":")
	}
	rest, query, hasQuery := strings.Cut(rest, "?")
	authority, path, hasAuthority := "", rest, false
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		authority, path, hasAuthority = after, "", true
		if i := strings.IndexByte(after, '/'); i >= 0 {
			authority, path = after[:i], after[i:]
		}
	}
	user, hosts, hasUser := strings.Cut(authority, "@")
	if !hasUser {
		user, hosts = "", authority
	}
	if strings.Contains(hosts+path+query, "@") || strings.Contains(raw, "#") {
		return nil, invalid("an @ or a # in a wrong place; in a user, a password or a parameter " +
			"they are written as %%40 and %%23")
	}
	if !isScheme(scheme) {
		return nil, invalid("it does not begin with a scheme, such as redis://host:port")
	}
	u := &URL{Scheme: strings.ToLower(scheme)}
	var err error
	if u.Path, err = url.PathUnescape(path); err != nil || hasControl(u.Path) {
		return nil, invalid("the path is not percent-encoded")
	}
	if hasAuthority {
		if err := u.setAuthority(user, hosts); err != nil {
			return nil, err
		}
	}
	if hasQuery {
		if err := u.setParams(query); err != nil {
			return nil, err
		}
	}
	return u, nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: the URL of the store: "+format,
		append([]any{ratelimit.ErrInvalidOptions}, args...)...)
}

// setAuthority sets what stands between // and the path.
func (u *URL) setAuthority(user, hosts string) error {
	name, password, _ := strings.Cut(user, ":")
	var errUser, errPassword error
	u.Username, errUser = url.PathUnescape(name)
	u.password, errPassword = url.PathUnescape(password)
	if errUser != nil || errPassword != nil {
		return invalid("the user or the password is not percent-encoded")
	}
	if hosts == "" {
		return nil
	}
	for host := range strings.SplitSeq(hosts, ",") {
		host, ok := parseHost(host)
		if !ok {
			return invalid("a host is not written as host, host:port or [address]:port")
		}
		u.Hosts = append(u.Hosts, host)
	}
	return nil
}

// parseHost returns the host and its port in the form that package net takes.
func parseHost(s string) (host string, ok bool) {
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		host, port = s[:i], s[i:]
		if n, err := strconv.ParseUint(port[1:], 10, 16); err != nil || n == 0 {
			return "", false
		}
	}
	if literal, ok := strings.CutPrefix(host, "["); ok {
		literal, ok = strings.CutSuffix(literal, "]")
		literal, err := url.PathUnescape(literal)
		addr, errAddr := netip.ParseAddr(literal)
		if !ok || err != nil || errAddr != nil || !addr.Is6() {
			return "", false
		}
		return "[" + addr.String() + "]" + port, true
	}
	isOther := func(c rune) bool {
		return !isLetter(c) && !isDigit(c) && c != '-' && c != '.' && c != '_'
	}
	return host + port, host != "" && !strings.ContainsFunc(host, isOther)
}

func (u *URL) setParams(query string) error {
	for i, text := range strings.Split(query, "&") {
		if text == "" {
			continue
		}
		name, value, ok := strings.Cut(text, "=")
		isOther := func(c rune) bool { return !isLetter(c) && !isDigit(c) && c != '-' && c != '_' }
		if !ok || name == "" || strings.ContainsFunc(name, isOther) {
			return invalid("its parameter %d is not written as name=value, with an & in values "+
				"as %%26", i+1)
		}
		value, err := url.PathUnescape(value)
		if err != nil {
			return invalid("the value of its parameter %d is not percent-encoded", i+1)
		}
		u.params = append(u.params, param{name: name, value: value})
	}
	return nil
}

func isScheme(s string) bool {
	isOther := func(c rune) bool {
		return !isLetter(c) && !isDigit(c) && c != '+' && c != '-' && c != '.'
	}
	return s != "" && isLetter(rune(s[0])) && !strings.ContainsFunc(s, isOther)
}

func isLetter(c rune) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
func isDigit(c rune) bool  { return '0' <= c && c <= '9' }

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// Password returns the password, empty if there is none.
func (u *URL) Password() string { return u.password }

// String returns u without user, password and parameters: what a log may show.
func (u URL) String() string {
	path := (&url.URL{Path: u.Path}).EscapedPath()
	switch {
	case u.Hosts != nil:
		return u.Scheme + "://" + strings.Join(u.Hosts, ",") + path
	case path != "":
		return u.Scheme + ":" + path
	}
	return u.Scheme
}

// GoString returns what String does.
func (u URL) GoString() string { return u.String() }

// Param returns the value of a parameter, and whether u has it.
func (u *URL) Param(name string) (value string, ok bool) {
	for i := range u.params {
		p := &u.params[i]
		if p.name != name {
			continue
		}
		if p.known = true; ok {
			u.Invalid(name, "it is given twice")
			break
		}
		value, ok = p.value, true
	}
	return value, ok
}

// Int returns the value of a parameter that is a whole number of at least least, and whether u has
// it and it is one.
func (u *URL) Int(name string, least int) (n int, ok bool) {
	value, ok := u.Param(name)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < least {
		u.Invalid(name, fmt.Sprintf("it is not a whole number of at least %d", least))
		return 0, false
	}
	return n, true
}

// Duration returns the value of a parameter that is a duration above zero, such as 100ms, and
// whether u has it and it is one.
func (u *URL) Duration(name string) (d time.Duration, ok bool) {
	value, ok := u.Param(name)
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		u.Invalid(name, "it is not a duration above zero, such as 100ms")
		return 0, false
	}
	return d, true
}

// Invalid makes Check return an error that says what is wrong with a parameter. why should not
// quote its value.
func (u *URL) Invalid(name, why string) {
	u.wrong = append(u.wrong, fmt.Sprintf("parameter %q: %s", name, why))
}

// Check returns an error that wraps [ratelimit.ErrInvalidOptions] if u has a parameter that was not
// asked for, twice or with a wrong value. It names the parameter.
func (u *URL) Check() error {
	wrong := slices.Clone(u.wrong)
	isPassword := func(p param) bool { return strings.Contains(p.name, "password") }
	for _, p := range u.params {
		switch {
		case p.known:
		case slices.ContainsFunc(u.params, isPassword): // its name may be the rest of a password
			wrong = append(wrong, "a parameter is unknown; in a password, & is written as %26")
		default:
			wrong = append(wrong, fmt.Sprintf("parameter %q is unknown", p.name))
		}
	}
	if wrong == nil {
		return nil
	}
	return invalid("%s", strings.Join(wrong, "; "))
}
