package httpapi

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// A forwardProfile says which headers of a proxy describe the request that it asks about. The
// client's address is in X-Forwarded-For of each.
//
// No header stands in for another one: a proxy passes on those that it does not set itself, as its
// client has written them.
type forwardProfile struct {
	method string
	host   string // or "": in url
	target string // path and query; or "": in url
	url    string // scheme, host, path and query
	// own says that the request that the proxy sends has all these itself, after CheckPath: they
	// are no headers.
	own bool
}

const xForwardedFor = "X-Forwarded-For"

var xForwarded = forwardProfile{method: "X-Forwarded-Method", host: "X-Forwarded-Host",
	target: "X-Forwarded-Uri"}

// forwardProfiles are those of --forward-auth. What nginx and HAProxy send is in their
// configurations: those of deploy/proxies.
var forwardProfiles = map[string]forwardProfile{
	"caddy":         xForwarded,
	"nginx":         xForwarded,
	"traefik":       xForwarded,
	"haproxy":       xForwarded,
	"ingress-nginx": {method: "X-Original-Method", url: "X-Original-URL"},
	"envoy":         {method: ":method", host: ":authority", target: ":path", own: true},
}

// ProfileFlag is the name of one of forwardProfiles.
type ProfileFlag string

// UnmarshalText is called by kong.
func (f *ProfileFlag) UnmarshalText(text []byte) error {
	if _, ok := forwardProfiles[string(text)]; !ok {
		return fmt.Errorf("%q is not one of %s", text,
			strings.Join(slices.Sorted(maps.Keys(forwardProfiles)), ", "))
	}
	*f = ProfileFlag(text)
	return nil
}

// header returns the name of the header with the value of a source, for the log.
func (p forwardProfile) header(source string) string {
	switch {
	case source == "client":
		return xForwardedFor
	case source == "method":
		return p.method
	case p.url != "":
		return p.url
	case source == "host":
		return p.host
	}
	return p.target
}

// A forwarded has the values of the request that a proxy asks about; empty if the proxy sends none.
type forwarded struct{ method, host, target string }

// read returns an error if a header or a target can be read in two ways.
func (p forwardProfile) read(r *http.Request) (forwarded, error) {
	h := r.Header
	f := forwarded{method: lastValue(h, p.method)}
	var host string
	var ok bool
	var err error
	switch {
	case p.own:
		f.method, host = r.Method, r.Host
		f.target, ok = strings.CutPrefix(r.RequestURI, CheckPath)
		if !ok || f.target != "" && f.target[0] != '/' && f.target[0] != '?' {
			return forwarded{}, errNotBelow
		}
	case p.url == "":
		host, f.target = lastValue(h, p.host), lastValue(h, p.target)
	default:
		if host, f.target, err = splitURL(lastValue(h, p.url)); err != nil {
			return forwarded{}, fmt.Errorf("%s %w", p.url, err)
		}
	}
	f.host = canonical(withoutPort(host))
	if strings.HasPrefix(f.target, "?") { // of a request for http://HOST?QUERY
		f.target = "/" + f.target
	}
	return f, nil
}

// withoutPort returns a host without the port, which clients choose: without all that follows the
// first colon, as nginx and Express find a site.
func withoutPort(host string) string {
	if inside, ok := strings.CutPrefix(host, "["); ok {
		host, _, _ = strings.Cut(inside, "]")
		return host
	}
	host, _, _ = strings.Cut(host, ":")
	return host
}

// lastValue returns the last value of a header: a proxy that adds one writes it after those of its
// client.
func lastValue(h http.Header, name string) string {
	values := h.Values(name)
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

var errNotBelow = errors.New("the target of the request is not a path after " + CheckPath)

var errAmbiguousURL = errors.New("has a host with ? or #")

// splitURL splits a URL at the first slash after the host. Package url would split it elsewhere:
// nginx puts it together from the header Host, which may have any character but a slash, and the
// target, which begins with a question mark in a request for http://HOST?QUERY. A URL of which
// both may be true is an error.
func splitURL(s string) (host, target string, err error) {
	if strings.HasPrefix(s, "/") {
		return "", s, nil
	}
	_, rest, ok := strings.Cut(s, "://")
	if !ok {
		return "", "", nil
	}
	slash := strings.IndexByte(rest, '/')
	if slash < 0 {
		host, query, _ := strings.Cut(rest, "?")
		return host, "/?" + query, nil
	}
	if strings.ContainsAny(rest[:slash], "?#") {
		return "", "", errAmbiguousURL
	}
	return rest[:slash], rest[slash:], nil
}
