package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxPart is the length in bytes up to which the first value of a key, and all others together, are
// not hashed.
const maxPart = 512

// Parts of a key that escaped values never are, since there a % is followed by two digits.
const (
	noValues   = "%*" // the key of no values
	emptyValue = "%"
	hashed     = "%#" // before the hash of what is too long
)

// MaxKey is the length of the longest [Key], in bytes.
const MaxKey = 2*maxPart + len("/")

// Key returns the key of a store for values. Different values have different keys, and no key is
// empty or longer than [MaxKey].
//
// The values are joined by "/", so the part before the first "/" stands for the first value. In a
// value "%" is "%25" and "/" is "%2F", and a byte that is not UTF-8 is such as "%FF", so that a key
// is UTF-8. An empty value is "%", and the key of no values is "%*". If the first value or all
// others together are longer than 512 bytes, their SHA-256 hash replaces them.
func Key(values ...string) string {
	if len(values) == 1 && isOrdinary(values[0]) {
		return values[0]
	}
	return string(appendKey(nil, values))
}

// isOrdinary reports whether a value is its own key.
func isOrdinary(value string) bool {
	return value != "" && len(value) <= maxPart && strings.IndexByte(value, '/') < 0 &&
		strings.IndexByte(value, '%') < 0 && utf8.ValidString(value)
}

func appendKey(dst []byte, values []string) []byte {
	if len(values) == 0 {
		return append(dst, noValues...)
	}
	dst = shorten(appendValue(dst, values[0]), len(dst))
	if len(values) == 1 {
		return dst
	}
	dst = append(dst, '/')
	rest := len(dst)
	for i, value := range values[1:] {
		if i > 0 {
			dst = append(dst, '/')
		}
		dst = appendValue(dst, value)
	}
	return shorten(dst, rest)
}

func appendValue(dst []byte, value string) []byte {
	if value == "" {
		return append(dst, emptyValue...)
	}
	const digits = "0123456789ABCDEF"
	for i, r := range value {
		c, isByte := value[i], r == utf8.RuneError && !strings.HasPrefix(value[i:], "\uFFFD")
		if c == '%' || c == '/' || isByte {
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		} else {
			dst = utf8.AppendRune(dst, r)
		}
	}
	return dst
}

// shorten replaces what follows the first bytes of key by its hash if it is too long.
func shorten(key []byte, from int) []byte {
	if len(key)-from <= maxPart {
		return key
	}
	sum := sha256.Sum256(key[from:])
	return hex.AppendEncode(append(key[:from], hashed...), sum[:])
}

// valuesOf returns the n values whose [Key] is key. What is no such key, since whoever names a
// limit may choose any, is one value; of several values there is none then. A value that is hashed
// is not known.
func valuesOf(key string, n int) (values []string, known []bool) {
	parts := strings.Split(key, "/")
	values, known = make([]string, n), make([]bool, n)
	for i, part := range parts[:min(n, len(parts))] {
		if !strings.HasPrefix(part, hashed) {
			values[i], known[i] = unescape(part)
		}
	}
	restHashed := len(parts) == 2 && strings.HasPrefix(parts[1], hashed)
	switch {
	case len(parts) == n && !slices.Contains(known, false):
	case n == 1 && !strings.HasPrefix(key, hashed):
		return []string{key}, []bool{true}
	case len(parts) != n && !restHashed:
		clear(known)
	}
	return values, known
}

// unescape undoes appendValue, which makes no other part of the same value.
func unescape(part string) (value string, ok bool) {
	switch part {
	case "":
		return "", false
	case emptyValue:
		return "", true
	}
	value, err := url.PathUnescape(part)
	return value, err == nil && string(appendValue(nil, value)) == part
}
