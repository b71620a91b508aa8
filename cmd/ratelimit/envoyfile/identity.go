package envoyfile

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// maxName is the length in bytes of the name of a driver.Limit.
const maxName = 64

// limitName returns the name of the limit at a path, which is a domain and the composites below it:
// all of them, separated by bars and percent-encoded where a name cannot have a byte. A name that
// would be too long is cut, and ends with ~ and a hash. Different paths have different names.
func limitName(path []string) string {
	var b []byte
	for i, part := range path {
		if i > 0 {
			b = append(b, '|')
		}
		b = appendEscaped(b, part)
	}
	if len(b) <= maxName {
		return string(b)
	}
	const digits = 24
	sum := sha256.Sum256(b)
	b = append(b[:maxName-digits-1], '~')
	return string(hex.AppendEncode(b, sum[:digits/2]))
}

func appendEscaped(dst []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"\%|~`, c) >= 0 {
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}

// An identity collects what identifies the history of a descriptor under its limit.
type identity struct {
	values []string
	// names has the number and the name of each entry whose name is not the key of the descriptor
	// of the file that it matched, because of a pattern or an underscore. The depth of the limit is
	// the number of values, so both may be parts of one key.
	names []string
}

func (h *identity) add(i int, e rules.Entry, configured string) {
	h.values = append(h.values, e.Value)
	if e.Name != configured {
		h.names = append(h.names, string(rune('0'+i)), e.Name)
	}
}

func (h *identity) key() string {
	if len(h.names) == 0 {
		return rules.Key(h.values...)
	}
	return rules.Key(append(h.values, h.names...)...)
}
