// Package keyspace names the keys of states on Redis and Valkey servers, and finds their cluster
// slots.
package keyspace

import (
	"errors"
	"strings"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/storedkey"
)

// A Keyspace names the keys under which a store keeps its states. The zero Keyspace has no prefix
// and no tags.
//
// A stored key is
//
//	prefix "{" tag "}" [key] ":" limit ":" algorithm
//
// A cluster takes the slot from the tag: the demand's key, or what the function for tags returns
// for it. key is left out if it equals the tag. Both are written as "=" and the bytes or, if those
// are more than 128, as "#" and their SHA-256 in unpadded base64url. "{", "}", "%" and control
// bytes, and ":" in the names of limit and algorithm, are written as "%" and two hexadecimal
// digits. So the first brace is the store's own, no byte of a caller closes or empties the tag, the
// two names are found from the right, and two demands have the same stored key only if key, limit's
// name and algorithm's name are the same.
type Keyspace struct {
	prefix string
	tag    func(key string) string
}

// maxLiteral is the largest number of bytes, as written, of a tag or key that is not hashed.
const maxLiteral = 128

const (
	literal = '='
	hashed  = '#'
)

var (
	escapedInPart = storedkey.NewSet(func(c byte) bool {
		return c < ' ' || c == 0x7f || c == '{' || c == '}'
	})
	escapedInName = storedkey.NewSet(func(c byte) bool { return escapedInPart[c] || c == ':' })
)

// New returns the keyspace of prefix. tag returns the tag of a key. If tag is nil or returns "",
// the tag is the key.
func New(prefix string, tag func(key string) string) (Keyspace, error) {
	if strings.ContainsAny(prefix, "{}") {
		return Keyspace{}, errors.New("a prefix must not contain braces")
	}
	return Keyspace{prefix, tag}, nil
}

// Key returns the stored key of d.
func (k Keyspace) Key(d driver.Demand) string {
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
	b = escapedInName.AppendEscaped(b, d.Algorithm.Limit().Name)
	b = append(b, ':')
	b = escapedInName.AppendEscaped(b, d.Algorithm.Name())
	return string(b)
}

// Spare returns a stored key with this tag that no demand has: it ends before the limit's name.
func (k Keyspace) Spare(tag string) string {
	return k.prefix + "{" + string(literal) + tag + "}"
}

func appendPart(b []byte, s string) []byte {
	if !isLiteral(s) {
		return storedkey.AppendHash(append(b, hashed), s)
	}
	return escapedInPart.AppendEscaped(append(b, literal), s)
}

func isLiteral(s string) bool { return escapedInPart.Fits(s, maxLiteral) }

// Scrub returns err, cut as by the function [Scrub]. If the text has a stored key of k, the error
// ends before that key.
func (k Keyspace) Scrub(err error) error { return cut(Scrub(err), k.prefix+"{") }

// Scrub returns err without the arguments of an unknown command, which a server repeats: keys, or a
// password in AUTH and HELLO.
func Scrub(err error) error { return cut(err, "with args beginning with") }

func cut(err error, from string) error {
	text := err.Error()
	if i := strings.Index(text, from); i >= 0 {
		return errors.New(text[:i] + "…")
	}
	return err
}
