package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// A KeyFunc returns the key of a request: the user or address that it is from, or what it asks for.
// An error or an empty key means that the request cannot be attributed; the client gets that
// answer, and not the text of the error. Many goroutines call it at once. Package clientip has the
// key functions of addresses.
//
// A key that the client can choose, such as the first address in X-Forwarded-For, limits nothing:
// the client chooses another one for each request.
type KeyFunc func(*http.Request) (string, error)

// Header returns the KeyFunc of the value of a header field, such as an API key. A request without
// the field, or with several lines of it, cannot be attributed.
//
// The client chooses the value: use it only where an earlier handler has verified it, or a proxy
// that all requests pass through has set it.
func Header(name string) KeyFunc {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) (string, error) {
		if values := r.Header[name]; len(values) == 1 && values[0] != "" {
			return values[0], nil
		}
		return "", errNoHeader
	}
}

// Cookie returns the KeyFunc of the value of a cookie, such as a session. A request without the
// cookie cannot be attributed. The client chooses the value; see [Header].
func Cookie(name string) KeyFunc {
	return func(r *http.Request) (string, error) {
		if c, err := r.Cookie(name); err == nil && c.Value != "" {
			return c.Value, nil
		}
		return "", errNoCookie
	}
}

// Pattern is the KeyFunc of the pattern of [http.ServeMux] that matched the request, such as "GET
// /users/{id}". The middleware has to be around the handlers that are registered in the mux: before
// the mux has run there is no pattern, and the request cannot be attributed.
func Pattern(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return "", errNoPattern
	}
	return r.Pattern, nil
}

// ContextValue returns the KeyFunc of a value in the request's context, such as the user that an
// earlier handler has authenticated: a string or a [fmt.Stringer]. A request without it cannot be
// attributed.
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

// Join returns the KeyFunc of several keys joined with [JoinKeys]. A request that one of them
// cannot attribute cannot be attributed. It panics without a key function, or with one that is nil.
func Join(keys ...KeyFunc) KeyFunc {
	if len(keys) == 0 {
		panic("httplimit: no key function")
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

// JoinKeys joins the parts of a key with "/". In a part it writes "%2F" for "/" and "%25" for "%".
// Different lists of parts have different keys, except that no part and one empty part have the
// same.
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
	errNoHeader = errors.New("httplimit: the request does not have exactly one value of " +
		"the header field")
	errNoCookie  = errors.New("httplimit: the request does not have the cookie")
	errNoPattern = errors.New("httplimit: no pattern of an http.ServeMux has matched the request")
	errNoValue   = errors.New("httplimit: the context of the request does not have the value")
)
