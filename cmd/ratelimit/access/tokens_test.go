package access

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestTokenFiles: a file without a usable token ends the start, and the error does not have it.
func TestTokenFiles(t *testing.T) {
	for tokens, want := range map[string]string{
		"":                              "no token",
		"\n \n":                         "no token",
		"too-short":                     ":1 has a token of less than 20 bytes",
		"a token with spaces in it, no": "less than 20 bytes",
		apitest.Token + "\n" + apitest.Token + " two names": ":2 has a name with a space",
		apitest.Token + " " + strings.Repeat("n", 101):      "longer than 100 bytes",
		// What no request can send would lock out whoever has the token, with no word.
		"\x00" + apitest.Token:              "a control character",
		"\ufeff" + apitest.Token:            "byte order mark",
		apitest.Token + "\n\ufeff":          "less than 20 bytes",
		apitest.Token + "\x1b[0m":           "a control character",
		apitest.Token + "\u00a0is-no-break": "a space",
		"\xff\xfe" + strings.Join(strings.Split(apitest.Token, ""), "\x00"): "a control character",
	} {
		err := NewTokens("flag", apitest.TokenFile(t, tokens), true).Read()
		if err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), apitest.Token) {
			t.Errorf("%q: %v, want %q", tokens, err, want)
		}
	}
	err := NewTokens("flag", t.TempDir()+"/missing", true).Read()
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
}

// TestTokenNames: a token has the name that follows it, or that of its file and of its hash.
func TestTokenNames(t *testing.T) {
	f := NewTokens("write-token-file", apitest.TokenFile(t,
		apitest.Token+" \t billing \nanother-token-of-the-tests\r\n"), true)
	if err := f.Read(); err != nil {
		t.Fatal(err)
	}
	table := &Table{Writers: f}
	for token, want := range map[string]string{apitest.Token: "token billing",
		"another-token-of-the-tests": "token write-token-file:4e017096",
		"a-token-of-nobody":          "unknown ", "": "anyone "} {
		if c := table.Find(token, nil); c.Kind+" "+c.Name != want {
			t.Errorf("%q is %s %s, want %s", token, c.Kind, c.Name, want)
		}
	}
}
