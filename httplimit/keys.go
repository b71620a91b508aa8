package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// A KeyFunc returns the key of a request, such as the user or address that sent it, or the resource
// that it asks for. An error or an empty key means that the request cannot be attributed; the
// client does not get the text of the error. A KeyFunc must be safe for concurrent use. Package
// clientip has key functions for the addresses of clients.
//
// A key that the client can choose, such as the first address in X-Forwarded-For, limits nothing:
// the client can send another one with each request.
type KeyFunc func(*http.Request) (string, error)

// Header returns a KeyFunc whose key is the value of a header field, such as an API key. The case
// of name does not matter. A request cannot be attributed if the field is missing, empty or
// repeated.
//
// The client can send any value. Use Header only if an earlier handler verifies the value, or if a
// proxy that all requests pass through sets it.
func Header(name string) KeyFunc {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) (string, error) {
		if values := r.Header[name]; len(values) == 1 && values[0] != "" {
			return values[0], nil
		}
		return "", errNoHeader
	}
}

// Cookie returns a KeyFunc whose key is the value of a cookie, such as a session. A request cannot
// be attributed if the cookie is missing or empty. The client can send any value; see [Header].
func Cookie(name string) KeyFunc {
	return func(r *http.Request) (string, error) {
		if c, err := r.Cookie(name); err == nil && c.Value != "" {
			return c.Value, nil
		}
		return "", errNoCookie
	}
}

// Route is a KeyFunc whose key is the route of the request: the method, a space, and the host and
// path of [http.Request.Pattern] as the router spells them, such as "GET /users/{id}". Use it also
// for costs by route.
//
// The method is that of the pattern or, if the pattern has none, that of the request. HEAD counts
// as GET, and a method that [net/http] does not name as OTHER, so that clients cannot choose new
// keys. A handler for all methods has a key for each of them: name the method in its pattern.
//
// [http.ServeMux], chi and Echo set the pattern. For other routers, set it before the middleware:
// see docs/frameworks.md. A request that no router has matched, or not yet, has no route and cannot
// be attributed. So put the middleware around the handlers of a mux, not around the mux.
func Route(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return "", errNoRoute
	}
	path := r.Pattern
	method := r.Method
	i := strings.IndexAny(path, " \t/")
	named := i > 0 && path[i] != '/'
	if named {
		method, path = path[:i], strings.TrimLeft(path[i:], " \t")
	}
	switch method {
	case "", http.MethodHead:
		method = http.MethodGet
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
	default:
		if !named {
			method = "OTHER"
		}
	}
	return method + " " + path, nil
}

// ContextValue returns a KeyFunc whose key is the value that the request's context has under key,
// such as the user that an earlier handler has authenticated. The value is a string or a
// [fmt.Stringer]. A request without a value, or with an empty string, cannot be attributed.
func ContextValue(key any) KeyFunc {
	return func(r *http.Request) (string, error) {
		var s string
		switch v := r.Context().Value(key).(type) {
		case string:
			s = v
		case fmt.Stringer:
			s = v.String()
		}
		if s == "" {
			return "", errNoValue
		}
		return s, nil
	}
}

// Join returns a KeyFunc whose key is several keys joined with [JoinKeys]. If one of keys cannot
// attribute a request, neither can Join. It panics if there are no keys or one of them is nil.
func Join(keys ...KeyFunc) KeyFunc {
	if len(keys) == 0 {
		panic("httplimit: Join needs a key function")
	}
	for _, key := range keys {
		if key == nil {
			panic("httplimit: a key function is nil")
		}
	}
	keys = append([]KeyFunc(nil), keys...)
	return func(r *http.Request) (string, error) {
		parts := make([]string, len(keys))
		for i, key := range keys {
			part, err := key(r)
			if err != nil {
				return "", err
			}
			if part == "" {
				return "", errNoKey
			}
			parts[i] = part
		}
		return JoinKeys(parts...), nil
	}
}

// JoinKeys joins parts to a key with "/". In each part it replaces "/" with "%2F" and "%" with
// "%25", so different lists of parts have different keys, with one exception: no parts and one
// empty part both have the empty key.
func JoinKeys(parts ...string) string {
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteByte('/')
		}
		_, _ = escaper.WriteString(&b, part) // a Builder does not fail
	}
	return b.String()
}

var escaper = strings.NewReplacer("%", "%25", "/", "%2F")

var (
	errNoHeader = errors.New("httplimit: the header field is missing, empty or repeated")
	errNoCookie = errors.New("httplimit: the cookie is missing or empty")
	errNoRoute  = errors.New("httplimit: the request has no route: Route needs a middleware " +
		"around the handlers of an http.ServeMux, not around the mux")
	errNoValue = errors.New("httplimit: the context of the request has no such string or Stringer")
)
