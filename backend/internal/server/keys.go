package server

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/truewindow/ratelimit"
)

// A Keyspace names the keys under which a store keeps its states. The zero Keyspace has no prefix and no tags.
//
// A stored key is
//
//	prefix "{" tag "}" [key] ":" limit ":" algorithm
//
// The tag is what a cluster takes the slot from: the demand's key, or what the function for tags makes of it; key is left out when it is
// the tag. Both are parts: "=" and the bytes, or, where those are more than 128, "#" and their SHA-256 in unpadded base64url. The
// bytes of parts and names have "{", "}", "%" and control bytes written as "%" and two hexadecimal digits, those of names also ":".
// So the first brace is the store's own, no user's byte closes or empties the tag, the two names are found from the
// right, and two demands have the same stored key only if key, limit's name and algorithm's name are the same.
type Keyspace struct {
	prefix string
	tag    func(key string) string
}

// maxLiteral is the most bytes, as written, of a part that is not hashed.
const maxLiteral = 128

const (
	literal = '='
	hashed  = '#'
)

// NewKeyspace returns the keyspace of prefix. tag names the group of a key; nil, and an empty result, mean the key itself.
func NewKeyspace(prefix string, tag func(key string) string) (Keyspace, error) {
	if strings.ContainsAny(prefix, "{}") {
		return Keyspace{}, errors.New("a prefix may not hold braces")
	}
	return Keyspace{prefix, tag}, nil
}

// Key returns the stored key of d.
func (k Keyspace) Key(d ratelimit.Demand) string {
	tag := d.Key
	if k.tag != nil {
		if t := k.tag(d.Key); t != "" {
			tag = t
		}
	}
	var buf [256]byte
	b := append(buf[:0], k.prefix...)
	b = append(b, '{')
	b = appendPart(b, tag)
	b = append(b, '}')
	if tag != d.Key {
		b = appendPart(b, d.Key)
	}
	b = append(b, ':')
	b = appendEscaped(b, d.Algorithm.Limit().Name, true)
	b = append(b, ':')
	b = appendEscaped(b, d.Algorithm.Name(), true)
	return string(b)
}

// Spare returns a stored key that no demand has: that of the empty key.
func (k Keyspace) Spare() string {
	return k.prefix + "{" + string(literal) + "}"
}

func appendPart(b []byte, s string) []byte {
	if !isLiteral(s) {
		sum := sha256.Sum256([]byte(s))
		return base64.RawURLEncoding.AppendEncode(append(b, hashed), sum[:])
	}
	return appendEscaped(append(b, literal), s, false)
}

func isLiteral(s string) bool {
	if len(s) > maxLiteral {
		return false
	}
	n := len(s)
	for i := range len(s) {
		if isSpecial(s[i]) {
			n += 2
		}
	}
	return n <= maxLiteral
}

func appendEscaped(b []byte, s string, colon bool) []byte {
	const digits = "0123456789ABCDEF"
	plain := 0 // most names have nothing to escape
	for plain < len(s) && !isSpecial(s[plain]) && (!colon || s[plain] != ':') {
		plain++
	}
	b, s = append(b, s[:plain]...), s[plain:]
	for i := range len(s) {
		c := s[i]
		if isSpecial(c) || colon && c == ':' {
			b = append(b, '%', digits[c>>4], digits[c&15])
		} else {
			b = append(b, c)
		}
	}
	return b
}

func isSpecial(c byte) bool {
	return c < ' ' || c == 0x7f || c == '{' || c == '}' || c == '%'
}

// Scrub returns err as it is if its text holds no stored key of k and nothing that [Scrub] cuts off, and otherwise an error with the text up
// to there.
func (k Keyspace) Scrub(err error) error { return cut(Scrub(err), k.prefix+"{") }

// Scrub returns err, without what it repeats of a command that the server does not know: keys, or in AUTH and HELLO a password.
func Scrub(err error) error { return cut(err, "with args beginning with") }

func cut(err error, from string) error {
	text := err.Error()
	if i := strings.Index(text, from); i >= 0 {
		return errors.New(text[:i] + "…")
	}
	return err
}
