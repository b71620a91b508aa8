package dashboard

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// text returns what can be shown of a user's text: at most 200 bytes, and without characters that
// cannot be seen or that change the order of others, which it shows as escapes.
func text(s string) string {
	const most = 200
	cut := s
	if len(cut) > most {
		cut = cut[:most]
		for i := 1; i < utf8.UTFMax && !utf8.ValidString(cut); i++ { // in the middle of a character
			cut = s[:most-i]
		}
	}
	if !utf8.ValidString(cut) || strings.ContainsFunc(cut, hidden) {
		cut = strings.Trim(strconv.QuoteToASCII(cut), `"`)
	}
	if len(cut) < len(s) && len(s) > most {
		cut += "… (" + strconv.Itoa(len(s)) + " bytes)"
	}
	return cut
}

func hidden(r rune) bool { return !unicode.IsPrint(r) || unicode.Is(unicode.Bidi_Control, r) }
