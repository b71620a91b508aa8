// Package paths says which paths servers may see in the path that a client has sent.
//
// Servers do not agree. Each does some of this, in its own order, and a proxy in front of it may
// have done some before: it decodes escapes, all, all but those of slashes, or only those of
// slashes or dots; it removes dot segments; it merges slashes; it takes a backslash for a slash; it
// ignores parameters after a semicolon, or ends the path there; it ends it at a number sign, or at
// a question mark or a zero byte that was escaped; it ignores a newline at the end; it takes what
// follows two or more slashes at the beginning for a host.
package paths

import (
	"slices"
	"strings"
)

// Bounds of readings. What people send has two or three.
const (
	maxReadings = 64
	maxBytes    = 32 << 10
	maxDecoded  = 3 // how often escapes are decoded, since a proxy and two layers behind it may
)

// Readings are the paths that servers may see in one path.
type Readings struct {
	// Key stands for all spellings of a path: it is decoded as often as possible, and without
	// dots, double slashes, backslashes, parameters and a query.
	Key string
	// List has the readings, each once. The first Strict of them are those between which servers
	// differ. The others are the path as it was sent, perhaps with a query or with escapes that
	// clients must send, as of a space, and readings with escapes in lower and upper case: a
	// pattern may be written so.
	List   []string
	Strict int
	// Open means that there are more readings than are listed, as of a path that nobody needs.
	Open bool
}

// Of returns the path of a request target as it was sent: without a query, and without the scheme
// and the host of an absolute one. It begins with a slash, or is "*" or empty.
func Of(target string) string {
	path, _, _ := strings.Cut(target, "?")
	if path == "" || path == "*" || path[0] == '/' {
		return path
	}
	if i := strings.Index(path, "://"); i > 0 && !strings.ContainsAny(path[:i], `/\#%`) {
		host, rest, _ := strings.Cut(path[i+len("://"):], "/")
		if strings.ContainsAny(host, `\#%`) { // servers do not agree where the host ends
			return "//" + host + "/" + rest
		}
		return "/" + rest
	}
	return "/" + path // which others may read so
}

// Read returns the readings of a path, or nil if it has no other reading than itself. What does not
// begin with a slash is not a path of a request.
func Read(path string) *Readings {
	if isPlain(path) {
		return nil
	}
	sent := path
	path, _, _ = strings.Cut(path, "?")
	r := &Readings{Key: key(path), List: make([]string, 0, 6)}
	size := 0
	add := func(s string) {
		switch {
		case r.Open || slices.Contains(r.List, s):
		case len(r.List) == maxReadings || size+len(s) > maxBytes && len(r.List) > 0:
			r.Open = true
		default:
			r.List, size = append(r.List, s), size+len(s)
		}
	}
	add(unescape(path, mustBeEscaped))
	from := 0
	for times := 0; ; times++ {
		for i := from; i < len(r.List) && !r.Open; i++ {
			for _, change := range changes {
				add(change(r.List[i]))
			}
		}
		end := len(r.List)
		if times == maxDecoded || end == from || r.Open {
			break
		}
		for _, s := range r.List[from:end] {
			for _, which := range decoded {
				add(unescape(s, which))
			}
		}
		from = end
	}
	if r.Open {
		return r
	}
	add(r.Key)
	r.Strict = len(r.List)
	if !slices.Contains(r.List, sent) { // with a query that may be long
		r.List = append(r.List, sent)
	}
	for _, s := range r.List[:r.Strict] {
		add(lowerEscapes(s))
		add(upperEscapes(s))
	}
	return r
}

// changes are what servers do to a path, apart from decoding it. Each returns a path without more
// for it to do.
var changes = []func(string) string{removeDots, removeLastDots, mergeSlashes, turnBackslashes,
	removeParameters, cutParameters, cut, removeHost, removeNewline}

// isPlain reports whether all servers see the same path.
func isPlain(path string) bool {
	if path == "" || path[0] != '/' {
		return true
	}
	for i := range len(path) {
		if !special[path[i]] {
			continue
		}
		if rest := path[i+1:]; path[i] != '/' ||
			rest != "" && (rest[0] == '/' || rest[0] == '.' && isDots(rest)) {
			return false
		}
	}
	return true
}

// special are the bytes that are not always only themselves.
var special = [256]bool{'%': true, '\\': true, ';': true, '?': true, '#': true, 0: true, '\n': true,
	'/': true}

// isDots reports whether a path begins with one of the segments . and .. without a slash before it.
func isDots(path string) bool {
	segment, _, _ := strings.Cut(path[:min(len(path), 3)], "/")
	return segment == "." || segment == ".."
}

// key returns the Key of a path.
func key(path string) string {
	path, _, _ = strings.Cut(path, "#")
	b := make([]byte, 0, len(path))
	for i := range len(path) {
		b = append(b, path[i])
		// What was decoded may be part of another escape.
		for c, ok := lastEscape(b); ok; c, ok = lastEscape(b) {
			b = append(b[:len(b)-3], c)
		}
	}
	return removeDots(mergeSlashes(removeParameters(turnBackslashes(removeNewline(string(b))))))
}

// removeDots removes dot segments as RFC 3986 does.
func removeDots(path string) string { return dotless(path, true) }

// removeLastDots is removeDots, but leaves no slash for a dot segment at the end.
func removeLastDots(path string) string { return dotless(path, false) }

func dotless(path string, slash bool) string {
	if !strings.Contains(path, "/.") {
		return path
	}
	segments := strings.Split(path[1:], "/")
	last := segments[len(segments)-1]
	kept := segments[:0]
	for _, s := range segments {
		switch s {
		case ".":
		case "..":
			kept = kept[:max(0, len(kept)-1)]
		default:
			kept = append(kept, s)
		}
	}
	if slash && (last == "." || last == "..") {
		kept = append(kept, "")
	}
	return "/" + strings.Join(kept, "/")
}

func mergeSlashes(path string) string {
	if !strings.Contains(path, "//") {
		return path
	}
	b := make([]byte, 0, len(path))
	for i := range len(path) {
		if i == 0 || path[i] != '/' || path[i-1] != '/' {
			b = append(b, path[i])
		}
	}
	return string(b)
}

func turnBackslashes(path string) string { return strings.ReplaceAll(path, `\`, "/") }

// removeParameters removes what begins with a semicolon from each segment.
func removeParameters(path string) string {
	if strings.IndexByte(path, ';') < 0 {
		return path
	}
	b := make([]byte, 0, len(path))
	skip := false
	for i := range len(path) {
		switch path[i] {
		case ';':
			skip = true
		case '/':
			skip = false
		}
		if !skip {
			b = append(b, path[i])
		}
	}
	return string(b)
}

// cutParameters ends the path at the first semicolon.
func cutParameters(path string) string {
	path, _, _ = strings.Cut(path, ";")
	return path
}

// removeNewline removes the newline at the end, before which $ matches in a regular expression.
func removeNewline(path string) string { return strings.TrimSuffix(path, "\n") }

func cut(path string) string {
	path, _, _ = strings.Cut(path, "?")
	path, _, _ = strings.Cut(path, "#")
	path, _, _ = strings.Cut(path, "\x00")
	return path
}

func removeHost(path string) string {
	if !strings.HasPrefix(path, "//") {
		return path
	}
	_, rest, _ := strings.Cut(strings.TrimLeft(path, "/"), "/")
	return "/" + rest
}
