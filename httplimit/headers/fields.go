package headers

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// This file reads Lists and Dictionaries of Structured Fields (RFC 9651, section 4.2) without inner
// lists. No field of this package has one, so a field with an inner list is malformed.

// kind is the type of a value.
type kind uint8

const (
	boolean kind = iota
	integer
	decimal
	text // a String or a Token
	bytes
	date
	display
)

// value is a Bare Item. Only the values that this package uses are kept.
type value struct {
	kind   kind
	number int64  // of an integer
	text   string // of a text, and the decoded bytes
}

// parameter is a value with a key.
type parameter struct {
	key string
	value
}

// member is a member of a List, or one of a Dictionary if it has a key.
type member struct {
	parameter
	parameters []parameter
}

// get returns the last parameter with the given key, or false.
func (m *member) get(key string) (v value, found bool) {
	for _, p := range m.parameters {
		if p.key == key {
			v, found = p.value, true
		}
	}
	return v, found
}

// The bounds of a field. A field beyond them is ignored like a malformed one.
const (
	maxFieldBytes = 8 << 10
	maxMembers    = 64
)

// list returns the members of a List of items, or false if the lines hold none.
func list(lines []string) ([]member, bool) {
	return members(lines, func(p *fieldReader) (m member, ok bool) {
		m.value, ok = p.bareItem()
		return m, ok
	})
}

// dictionary returns the members of a Dictionary of items, also all those of a key that is
// repeated, or false if the lines hold none.
func dictionary(lines []string) ([]member, bool) {
	return members(lines, func(p *fieldReader) (m member, ok bool) {
		if m.key, ok = p.key(); !ok {
			return m, false
		}
		if p.take('=') {
			m.value, ok = p.bareItem()
		}
		return m, ok
	})
}

func members(lines []string, read func(*fieldReader) (member, bool)) (all []member, ok bool) {
	field := strings.Join(lines, ",") // lines of one field are one list
	if len(field) > maxFieldBytes {
		return nil, false
	}
	p := fieldReader{strings.Trim(field, " ")}
	for p.rest != "" {
		m, ok := read(&p)
		if !ok || len(all) == maxMembers {
			return nil, false
		}
		if m.parameters, ok = p.readParameters(); !ok {
			return nil, false
		}
		all = append(all, m)
		p.skip(" \t")
		if p.rest == "" {
			break
		}
		if !p.take(',') {
			return nil, false
		}
		p.skip(" \t")
		if p.rest == "" { // a comma at the end
			return nil, false
		}
	}
	return all, len(all) > 0
}

// fieldReader reads a field from left to right.
type fieldReader struct{ rest string }

// skip drops leading characters of set.
func (p *fieldReader) skip(set string) { p.rest = strings.TrimLeft(p.rest, set) }

// take drops the next character if it is c, and reports whether it was.
func (p *fieldReader) take(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// while returns the characters before the first for which ok returns false, and drops them.
func (p *fieldReader) while(ok func(c byte) bool) string {
	n := 0
	for n < len(p.rest) && ok(p.rest[n]) {
		n++
	}
	s := p.rest[:n]
	p.rest = p.rest[n:]
	return s
}

func (p *fieldReader) readParameters() (all []parameter, ok bool) {
	for p.take(';') {
		p.skip(" ")
		key, ok := p.key()
		if !ok {
			return nil, false
		}
		var v value
		if p.take('=') {
			if v, ok = p.bareItem(); !ok {
				return nil, false
			}
		}
		all = append(all, parameter{key, v})
	}
	return all, true
}

func (p *fieldReader) key() (key string, ok bool) {
	if p.rest == "" || !isLower(p.rest[0]) && p.rest[0] != '*' {
		return "", false
	}
	return p.while(func(c byte) bool {
		return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
	}), true
}

func (p *fieldReader) bareItem() (v value, ok bool) {
	if p.rest == "" {
		return v, false
	}
	switch c := p.rest[0]; {
	case isDigit(c), c == '-':
		return p.number()
	case c == '"':
		v.kind = text
		v.text, ok = p.quoted()
		return v, ok
	case isAlpha(c), c == '*':
		return value{kind: text, text: p.while(isToken)}, true
	case c == ':':
		return p.byteSequence()
	case c == '?':
		v.kind = boolean
		p.rest = p.rest[1:]
		return v, p.take('0') || p.take('1')
	case c == '@':
		p.rest = p.rest[1:]
		v, ok = p.number()
		return value{kind: date}, ok && v.kind == integer
	case c == '%':
		return p.displayString()
	}
	return v, false
}

// number reads an Integer of at most 15 digits, or a Decimal of at most 12 and 3.
func (p *fieldReader) number() (v value, ok bool) {
	negative := p.take('-')
	digits := p.while(isDigit)
	if digits == "" || len(digits) > 15 {
		return v, false
	}
	if p.take('.') {
		fraction := p.while(isDigit)
		v.kind = decimal
		return v, len(digits) <= 12 && len(fraction) >= 1 && len(fraction) <= 3
	}
	v.kind = integer
	for i := range len(digits) {
		v.number = 10*v.number + int64(digits[i]-'0')
	}
	if negative {
		v.number = -v.number
	}
	return v, true
}

// quoted reads a String. It allocates nothing if the String has no escapes.
func (p *fieldReader) quoted() (s string, ok bool) {
	p.take('"')
	for escaped := []byte(nil); ; {
		plain := p.while(func(c byte) bool {
			return c >= ' ' && c <= '~' && c != '"' && c != '\\'
		})
		switch {
		case p.take('"'):
			if escaped == nil {
				return plain, true
			}
			return string(append(escaped, plain...)), true
		case p.take('\\') && p.rest != "" && (p.rest[0] == '"' || p.rest[0] == '\\'):
			escaped = append(append(escaped, plain...), p.rest[0])
			p.rest = p.rest[1:]
		default:
			return "", false
		}
	}
}

// byteSequence reads a Byte Sequence.
func (p *fieldReader) byteSequence() (v value, ok bool) {
	p.take(':')
	end := strings.IndexByte(p.rest, ':')
	if end < 0 {
		return v, false
	}
	encoded := p.rest[:end]
	p.rest = p.rest[end+1:]
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	v = value{kind: bytes, text: string(decoded)}
	return v, err == nil && !strings.ContainsAny(encoded, "\r\n") // the decoder skips these
}

// displayString reads a Display String, checks it and drops it.
func (p *fieldReader) displayString() (v value, ok bool) {
	v.kind = display
	p.take('%')
	if !p.take('"') {
		return v, false
	}
	var decoded []byte
	for {
		decoded = append(decoded, p.while(func(c byte) bool {
			return c >= ' ' && c <= '~' && c != '"' && c != '%'
		})...)
		switch {
		case p.take('"'):
			return v, utf8.Valid(decoded)
		case p.take('%') && len(p.rest) >= 2:
			high := strings.IndexByte(hexDigits, p.rest[0])
			low := strings.IndexByte(hexDigits, p.rest[1])
			if high < 0 || low < 0 {
				return v, false
			}
			decoded = append(decoded, byte(high<<4|low))
			p.rest = p.rest[2:]
		default:
			return v, false
		}
	}
}

const hexDigits = "0123456789abcdef"

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isAlpha(c byte) bool { return isLower(c) || c >= 'A' && c <= 'Z' }

// isToken reports whether c may be in a Token.
func isToken(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}
