package paths_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
)

// A hop is what a server does to the target of a request: a proxy passes on another one, and an
// application finds a handler by the path. It is empty if the request ends there.
type hop struct {
	name string
	do   func(target string) string
}

// proxiesInFront pass targets on.
var proxiesInFront = []hop{
	{"as it is", func(target string) string { return target }},
	{"nginx, proxy_pass with a URI", func(target string) string {
		return escapeAgain(nginxPath(target))
	}},
	{"nginx, proxy_pass with $uri", func(target string) string {
		p := nginxPath(target)
		if strings.ContainsFunc(p, func(r rune) bool { return r <= ' ' }) {
			return ""
		}
		return p
	}},
	{"Traefik", func(target string) string { return cleaned(pathOf(target)) }},
	{"Envoy", func(target string) string { return merge(withoutDots(pathOf(target), true)) }},
	{"Envoy, UNESCAPE_AND_FORWARD", func(target string) string {
		return merge(withoutDots(decodeOnly(pathOf(target), `/\`), true))
	}},
}

// applications return the path by which they find a handler.
var applications = []hop{
	{"http.ServeMux", serveMux},
	{"http.FileServer", func(target string) string { // apart from the final slash
		return withURL(target, func(u *url.URL) string { return cleaned(u.Path) })
	}},
	{"chi", rawOrDecoded},
	{"gin", func(target string) string {
		return withURL(target, func(u *url.URL) string { return u.Path })
	}},
	{"gin, UseRawPath", rawOrDecoded},
	{"gin, RemoveExtraSlash", func(target string) string {
		return withURL(target, func(u *url.URL) string { return cleaned(u.Path) })
	}},
	{"gin, UseRawPath and RemoveExtraSlash", func(target string) string {
		return cleaned(rawOrDecoded(target))
	}},
	{"Express", express},
	{"Node, new URL", nodeURL},
	{"Node, new URL and decodeURI", func(target string) string {
		return decodeAll(nodeURL(target))
	}},
	{"Fastify 4", func(target string) string { // whose path also ends at a semicolon
		return decodeBut(firstOf(firstOf(pathOf(target), ";"), "#"), "#$&+,/:;=?@")
	}},
	{"Starlette", func(target string) string { // whose $ matches before a newline
		return strings.TrimSuffix(decodeAll(firstOf(pathOf(target), "#")), "\n")
	}},
	{"fasthttp", fasthttp},
	{"gunicorn", func(target string) string { // as uWSGI does
		return decodeAll(firstOf(pathOf(target), "#"))
	}},
	{"PHP behind nginx, try_files", nginxPath},
	{"PHP, REQUEST_URI", func(target string) string {
		return decodeAll(firstOf(pathOf(target), "#"))
	}},
	{"Apache, AllowEncodedSlashes On", func(target string) string {
		return merge(withoutDots(decodeAll(pathOf(target)), false))
	}},
	{"Apache, AllowEncodedSlashes NoDecode", func(target string) string {
		return merge(withoutDots(decodeBut(pathOf(target), "/"), false))
	}},
	{"Apache, MergeSlashes Off", func(target string) string {
		return withoutDots(decodeAll(pathOf(target)), false)
	}},
	{"Tomcat", func(target string) string {
		return withoutDots(merge(decodeAll(withoutParameters(pathOf(target)))), false)
	}},
	{"Tomcat, ALLOW_BACKSLASH, passthrough", func(target string) string {
		p := decodeBut(withoutParameters(pathOf(target)), "/")
		return withoutDots(merge(strings.ReplaceAll(p, `\`, "/")), false)
	}},
	{"Jetty", func(target string) string { // parameters leave after the dots
		return withoutParameters(withoutDots(decodeAll(pathOf(target)), false))
	}},
	{"IIS", func(target string) string {
		p := strings.ReplaceAll(decodeBut(pathOf(target), "/"), `\`, "/")
		return withoutDots(p, false)
	}},
	{"Rails", func(target string) string { return decodeAll(merge(pathOf(target))) }},
	{"decodes twice", func(target string) string {
		return merge(withoutDots(decodeAll(decodeAll(pathOf(target))), false))
	}},
	{"a string that a zero byte ends", func(target string) string {
		return firstOf(decodeAll(pathOf(target)), "\x00")
	}},
}

// pathOf returns the path of a target as it is, without a query, a scheme and a host.
func pathOf(target string) string {
	target = firstOf(target, "?")
	if rest, ok := strings.CutPrefix(target, "http://"); ok {
		_, p, _ := strings.Cut(rest, "/")
		return "/" + p
	}
	if !strings.HasPrefix(target, "/") {
		return ""
	}
	return target
}

func firstOf(s, sep string) string {
	first, _, _ := strings.Cut(s, sep)
	return first
}

// serveMux asks the mux of net/http itself.
func serveMux(target string) (found string) {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(
		"GET " + target + " HTTP/1.1\r\nHost: app.example\r\n\r\n")))
	if err != nil {
		return ""
	}
	mux := http.NewServeMux()
	for _, p := range []string{"/", "/api/", "/login", "/free/"} {
		mux.HandleFunc(p, func(http.ResponseWriter, *http.Request) { found = p })
	}
	mux.ServeHTTP(httptest.NewRecorder(), r)
	return found
}

func withURL(target string, of func(*url.URL) string) string {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return ""
	}
	return of(u)
}

// rawOrDecoded returns the path as it was sent, if Go would encode it in another way.
func rawOrDecoded(target string) string {
	return withURL(target, func(u *url.URL) string {
		if u.RawPath != "" {
			return u.RawPath
		}
		return u.Path
	})
}

// cleaned returns a path without dots and double slashes, with its final slash.
func cleaned(p string) string {
	if p == "" {
		return ""
	}
	clean := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}

func express(target string) string {
	p := pathOf(target)
	if before, _, ok := strings.Cut(p, "#"); ok { // parsed by url.parse
		return strings.ReplaceAll(before, `\`, "/")
	}
	return p
}

// nodeURL is the pathname of new URL(target, "http://localhost").
func nodeURL(target string) string {
	p := strings.ReplaceAll(firstOf(pathOf(target), "#"), `\`, "/")
	if strings.HasPrefix(target, "/") && strings.HasPrefix(p, "//") {
		_, rest, _ := strings.Cut(strings.TrimLeft(p, "/"), "/")
		p = "/" + rest
	}
	return withoutDots(p, true)
}

// nginxPath is $uri of nginx.
func nginxPath(target string) string {
	p := firstOf(pathOf(target), "#")
	for i := range len(p) {
		if p[i] == '%' && (i+2 >= len(p) || decodeAll(p[i:i+3]) == p[i:i+3]) {
			return ""
		}
	}
	p = decodeAll(p)
	if strings.Contains(p, "\x00") {
		return ""
	}
	return withoutDots(merge(p), false)
}

// escapeAgain escapes a path as nginx does.
func escapeAgain(p string) string {
	var b strings.Builder
	for i := range len(p) {
		if c := p[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("#%?", c) >= 0 {
			b.WriteString("%" + strings.ToUpper(string("0123456789abcdef"[c>>4])) +
				string("0123456789ABCDEF"[c&15]))
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// fasthttp takes what follows two slashes for a host, and then cleans the path.
func fasthttp(target string) string {
	p := pathOf(target)
	if rest, ok := strings.CutPrefix(p, "//"); ok {
		_, p, _ = strings.Cut(firstOf(rest, "#"), "/")
		p = "/" + p
	}
	return withoutDots(merge(decodeAll(firstOf(p, "#"))), false)
}

func decodeAll(s string) string { return decodeEach(s, func(byte) bool { return true }) }

func decodeBut(s, chars string) string {
	return decodeEach(s, func(c byte) bool { return strings.IndexByte(chars, c) < 0 })
}

func decodeOnly(s, chars string) string {
	return decodeEach(s, func(c byte) bool { return strings.IndexByte(chars, c) >= 0 })
}

func decodeEach(s string, which func(byte) bool) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if i+2 < len(s) && s[i] == '%' {
			if c, err := url.PathUnescape(s[i : i+3]); err == nil && which(c[0]) {
				b.WriteString(c)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func merge(p string) string {
	for strings.Contains(p, "//") {
		p = strings.ReplaceAll(p, "//", "/")
	}
	return p
}

// withoutDots removes dot segments as RFC 3986 says, those with escaped dots too if escaped.
func withoutDots(p string, escaped bool) string {
	if !strings.HasPrefix(p, "/") {
		return ""
	}
	var kept []string
	segments := strings.Split(p[1:], "/")
	for i, s := range segments {
		as := s
		if escaped {
			as = decodeOnly(s, ".")
		}
		switch as {
		case ".", "..":
			if as == ".." && len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
			if i == len(segments)-1 {
				kept = append(kept, "")
			}
		default:
			kept = append(kept, s)
		}
	}
	return "/" + strings.Join(kept, "/")
}

func withoutParameters(p string) string {
	segments := strings.Split(p, "/")
	for i, s := range segments {
		segments[i] = firstOf(s, ";")
	}
	return strings.Join(segments, "/")
}
