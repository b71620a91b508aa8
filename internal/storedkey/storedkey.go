// Package storedkey writes strings as parts of the keys under which stores keep states: as they
// are, but for some bytes, or as a hash where that would be long.
package storedkey

import (
	"crypto/sha256"
	"encoding/base64"
)

// A Set is the bytes that are written as "%" and two hexadecimal digits. "%" is one of them.
type Set [256]bool

// NewSet returns the set of the bytes for which in is true.
func NewSet(in func(c byte) bool) *Set {
	s := &Set{'%': true}
	for c := range s {
		s[c] = s[c] || in(byte(c))
	}
	return s
}

// Fits reports whether AppendEscaped writes at most so many bytes for s.
func (set *Set) Fits(s string, most int) bool {
	n := len(s)
	if n > most || 3*n <= most {
		return n <= most
	}
	for i := range len(s) {
		if set[s[i]] {
			n += 2
		}
	}
	return n <= most
}

// AppendEscaped appends s.
func (set *Set) AppendEscaped(b []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	plain := 0 // most strings have nothing to escape
	for plain < len(s) && !set[s[plain]] {
		plain++
	}
	b, s = append(b, s[:plain]...), s[plain:]
	for i := range len(s) {
		if c := s[i]; set[c] {
			b = append(b, '%', digits[c>>4], digits[c&15])
		} else {
			b = append(b, c)
		}
	}
	return b
}

// AppendHash appends the SHA-256 of s in unpadded base64url, which is 43 bytes.
func AppendHash(b []byte, s string) []byte {
	sum := sha256.Sum256([]byte(s))
	return base64.RawURLEncoding.AppendEncode(b, sum[:])
}
