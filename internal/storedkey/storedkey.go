// Package storedkey encodes strings as parts of the keys under which stores keep states: some bytes
// are escaped, and long strings are hashed.
package storedkey

import (
	"crypto/sha256"
	"encoding/base64"
)

// A Set contains the bytes that are escaped as "%" and two hexadecimal digits. "%" always belongs
// to it.
type Set [256]bool

// NewSet returns the set of "%" and the bytes for which in returns true.
func NewSet(in func(c byte) bool) *Set {
	s := &Set{'%': true}
	for c := range s {
		s[c] = s[c] || in(byte(c))
	}
	return s
}

// Fits reports whether AppendEscaped appends no more than most bytes for s.
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

// AppendEscaped appends s, with the bytes of the set escaped.
func (set *Set) AppendEscaped(b []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	plain := 0 // most strings need no escape
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

// AppendHash appends the SHA-256 of s in unpadded base64url, 43 bytes.
func AppendHash(b []byte, s string) []byte {
	sum := sha256.Sum256([]byte(s))
	return base64.RawURLEncoding.AppendEncode(b, sum[:])
}
