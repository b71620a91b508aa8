package access

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync/atomic"
	"unicode"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/readfile"
)

// Tokens are those of a file that has one in each line, and after it perhaps a name.
type Tokens struct {
	flag, path string
	may        Rights
	current    atomic.Pointer[[]entry]
}

// NewTokens returns the tokens of a file, which is not read yet, by the name of its flag. They may
// decide, settle and read, and if write is true also write.
func NewTokens(flag, path string, write bool) *Tokens {
	t := &Tokens{flag: flag, path: path, may: ToDecide | ToSettle | ToRead}
	if write {
		t.may = all
	}
	return t
}

// Read reads the file and puts its tokens in force. After an error those of before are.
func (t *Tokens) Read() error {
	text, err := readfile.Credentials(t.path)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	var entries []entry
	number := 0
	for line := range bytes.Lines(text) {
		number++
		// Only these separate a name: any other space is a mistake in a token.
		line = bytes.Trim(line, " \t\r\n")
		if len(line) == 0 {
			continue
		}
		token, name := line, ""
		if i := bytes.IndexAny(line, " \t"); i >= 0 {
			token, name = line[:i], string(bytes.Trim(line[i:], " \t"))
		}
		wrong := wrongToken(token)
		if name != "" && wrong == "" {
			wrong = wrongName(name)
		}
		if wrong != "" {
			return fmt.Errorf("tokens: %s:%d has %s", t.path, number, wrong)
		}
		sum := sha256.Sum256(token)
		if name == "" {
			name = t.flag + ":" + hex.EncodeToString(sum[:4])
		}
		entries = append(entries,
			entry{Caller: Caller{Kind: ByToken, Name: name, may: t.may}, sum: sum})
	}
	if len(entries) == 0 {
		return fmt.Errorf("tokens: %s has no token", t.path)
	}
	t.current.Store(&entries)
	return nil
}

// find returns the caller of a token, or nil.
func (t *Tokens) find(sum *[sha256.Size]byte) *Caller {
	if t == nil {
		return nil
	}
	return findToken(*t.current.Load(), sum)
}

// shortestToken is the least number of bytes of a token: 16 random ones in hexadecimal digits are
// 32, and in base64 22.
const shortestToken = 20

// wrongToken says what is wrong with a token, without it, or returns "".
func wrongToken(token []byte) string {
	switch {
	case len(token) < shortestToken:
		return fmt.Sprintf("a token of less than %d bytes", shortestToken)
	case bytes.ContainsFunc(token, unseen):
		return "a token with a space, a control character or a byte order mark in it"
	}
	return ""
}

const longestName = 100

// wrongName says what is wrong with the name of a credential, without it, since it may be a secret
// in the wrong place, or returns "".
func wrongName(name string) string {
	switch {
	case name == "" || len(name) > longestName:
		return fmt.Sprintf("a name that is empty or longer than %d bytes", longestName)
	case bytes.ContainsFunc([]byte(name), unseen):
		return "a name with a space, a control character or a byte order mark in it"
	}
	return ""
}

// unseen reports whether r is of no token and name: requests could not send it, or an editor has
// put it there unseen.
func unseen(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\ufeff' }
