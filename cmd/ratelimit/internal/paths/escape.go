package paths

import "strings"

// unescape decodes the escapes of the bytes that which chooses, each once. Others, and what is not
// an escape, stay as they are.
func unescape(s string, which func(byte) bool) string {
	var b []byte
	from := 0
	for i := strings.IndexByte(s, '%'); i >= 0 && i < len(s); i++ {
		if c, ok := escapeAt(s, i); ok && which(c) {
			if b == nil {
				b = make([]byte, 0, len(s))
			}
			b = append(append(b, s[from:i]...), c)
			i += 2
			from = i + 1
		}
	}
	if b == nil {
		return s
	}
	return string(append(b, s[from:]...))
}

// decoded are the bytes whose escapes a server decodes before it looks for a handler.
var decoded = []func(byte) bool{
	func(byte) bool { return true },
	func(c byte) bool { return c != '/' },
	func(c byte) bool { return c == '/' || c == '\\' },
	func(c byte) bool { return c == '.' },
}

// mustBeEscaped reports whether clients cannot send a byte in a path as it is. So its escape is no
// spelling of something else.
func mustBeEscaped(c byte) bool {
	return c > 0 && c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>^`{|}", c) >= 0
}

// lowerEscapes returns s with the digits of all escapes in lower case.
func lowerEscapes(s string) string {
	return mapEscapes(s, func(c byte) byte {
		if 'A' <= c && c <= 'F' {
			c += 'a' - 'A'
		}
		return c
	})
}

// upperEscapes returns s with the digits of all escapes in upper case.
func upperEscapes(s string) string {
	return mapEscapes(s, func(c byte) byte {
		if 'a' <= c && c <= 'f' {
			c -= 'a' - 'A'
		}
		return c
	})
}

// mapEscapes changes the digits of all escapes.
func mapEscapes(s string, digit func(byte) byte) string {
	var b []byte
	for i := 0; i < len(s); i++ {
		if _, ok := escapeAt(s, i); !ok {
			continue
		}
		for _, j := range []int{i + 1, i + 2} {
			if c := digit(s[j]); c != s[j] {
				if b == nil {
					b = []byte(s)
				}
				b[j] = c
			}
		}
		i += 2
	}
	if b == nil {
		return s
	}
	return string(b)
}

// escapeAt returns the byte of the escape at an index of s.
func escapeAt(s string, i int) (c byte, ok bool) {
	if s[i] != '%' || i+2 >= len(s) {
		return 0, false
	}
	return decode(s[i+1], s[i+2])
}

// lastEscape returns the byte of the escape that is the end of b.
func lastEscape(b []byte) (c byte, ok bool) {
	n := len(b)
	if n < 3 || b[n-3] != '%' {
		return 0, false
	}
	return decode(b[n-2], b[n-1])
}

func decode(high, low byte) (c byte, ok bool) {
	h, isHigh := digit(high)
	l, isLow := digit(low)
	return h<<4 | l, isHigh && isLow
}

func digit(c byte) (value byte, ok bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}
