package backend

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// A URL names a store and holds its parameters. It has one of the forms
//
//	scheme[:path][?name=value&…]
//	scheme://[[user]:password@][host[:port][,host[:port]…]][/path][?name=value&…]
//
// In a user, a password, a path and the value of a parameter any character may be percent-encoded.
// Some must be: @, #, % and those that would end the part, such as / and ? in a password or & in a
// value. A + is a plus sign, not a space.
//
// An [Opener] reads each parameter that it supports, with Param, Int or Duration, and then calls
// Check. A URL is not safe for concurrent use.
type URL struct {
	Scheme   string   // in lower case
	Username string   // empty if there is none
	Hosts    []string // each as host or host:port, IPv6 addresses in brackets
	Path     string   // with its leading slash, if there is one

	password string // unexported: encoders skip it, and String and GoString do not show it
	params   []param
	wrong    []string // what is wrong with parameters
}

type param struct {
	name, value string
	known       bool // the opener has read it
}

// ParseURL parses a URL. An error wraps [driver.ErrInvalid] and quotes no part of the
// URL, since any part may belong to a password with unencoded characters.
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
		return nil, invalid("an @ or a # is in the wrong place; in a user, a password or a " +
			"parameter write them as %%40 and %%23")
	}
	if !isScheme(scheme) {
		return nil, invalid("it does not begin with a scheme, such as redis://host:port")
	}
	u := &URL{Scheme: strings.ToLower(scheme)}
	var err error
	if u.Path, err = url.PathUnescape(path); err != nil || hasControl(u.Path) {
		return nil, invalid("the path has a control character, or a %% that is not " +
			"percent-encoded; write it as %%25")
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
	return fmt.Errorf("%w options: the URL of the store: "+format,
		append([]any{driver.ErrInvalid}, args...)...)
}

// setAuthority sets what stands between // and the path.
func (u *URL) setAuthority(user, hosts string) error {
	name, password, _ := strings.Cut(user, ":")
	var errUser, errPassword error
	u.Username, errUser = url.PathUnescape(name)
	u.password, errPassword = url.PathUnescape(password)
	if errUser != nil || errPassword != nil {
		return invalid("a %% in the user or the password is not percent-encoded; write it as %%25")
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
			return invalid("parameter %d is not written as name=value; write an & in a value "+
				"as %%26", i+1)
		}
		value, err := url.PathUnescape(value)
		if err != nil {
			return invalid("a %% in the value of parameter %d is not percent-encoded; "+
				"write it as %%25", i+1)
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

// String returns u without user, password and parameters, for logs.
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

// Param returns the value of a parameter, and whether u has it. Check accepts the parameters that
// Param, Int and Duration have read; one that is given twice is an error.
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

// Int returns the value of a parameter as a whole number. ok is false if u does not have the
// parameter. It is also false if the value is not a whole number or is below least; then Check
// returns an error.
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

// Duration returns the value of a parameter as a duration, such as 100ms. ok is false if u does not
// have the parameter. It is also false if the value is not a duration above zero; then Check
// returns an error.
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

// Invalid makes Check return an error that names a parameter and says why it is wrong. why should
// not quote the value, which may be secret.
func (u *URL) Invalid(name, why string) {
	u.wrong = append(u.wrong, fmt.Sprintf("parameter %q: %s", name, why))
}

// Check returns an error that wraps [driver.ErrInvalid] if u has a parameter that was not
// read, that is given twice, or whose value is wrong. It names the parameter. If u has a parameter
// for a password it does not name those that were not read: their names may be the rest of a
// password.
func (u *URL) Check() error {
	wrong := slices.Clone(u.wrong)
	isPassword := func(p param) bool { return strings.Contains(p.name, "password") }
	for _, p := range u.params {
		switch {
		case p.known:
		case slices.ContainsFunc(u.params, isPassword): // its name may be the rest of a password
			wrong = append(wrong, "a parameter is unknown; write an & in a password as %26")
		default:
			wrong = append(wrong, fmt.Sprintf("parameter %q is unknown", p.name))
		}
	}
	if wrong == nil {
		return nil
	}
	return invalid("%s", strings.Join(wrong, "; "))
}
