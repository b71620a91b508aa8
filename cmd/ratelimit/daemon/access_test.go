package daemon

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
)

// basic returns credentials as browsers send them, with token as the password.
func basic(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+token))
}

// TestAccess asks for each right with each token, with and without files of tokens.
func TestAccess(t *testing.T) {
	const reader, writer = "a-token-to-read-with", "a-token-to-write-with"
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	none, both := new(rights), &rights{
		readers: newTokens(tokenFile(t, "an-older-token-to-read\n"+reader+"\n")),
		writers: newTokens(tokenFile(t, " "+writer+" \n\n"))}
	for _, tokens := range []*tokens{both.readers, both.writers} {
		if err := tokens.read(); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		of    *rights
		path  string
		token string
		want  int
	}{
		{none, "/v1/decide", "", 204},
		{none, "/v1/top-keys", "", 204},
		{none, "/metrics", "", 204},
		{none, "/v1/reset", "", 403},
		{none, "/v1/force", "Bearer " + writer, 403},
		{none, "/v1/block", "Bearer ", 403},
		{both, "/v1/decide", "", 204},
		{both, "/v1/settle", "Bearer wrong", 204},
		{both, "/healthz", "", 204},
		{both, "/nowhere", "", 204},
		{both, "/v1/top-keys", "", 401},
		{both, "/metrics", "Bearer " + writer + "s", 401},
		{both, "/metrics", "Basic " + reader, 401},
		{both, "/metrics", "bearer " + reader, 204},
		{both, "/metrics", basic(reader), 204},
		{both, "/v1/reset", basic(writer), 204},
		{both, "/dashboard/", "", 401},
		{both, "/dashboard/snapshot", basic(reader), 204},
		{both, "/dashboard/act", basic(reader), 403},
		{both, "/dashboard/act", basic(writer), 204},
		{both, "/dashboard/any/act", "", 401},
		{both, "/dashboard//act", basic(reader), 403},
		{both, "/dashboard/any/act", basic(writer), 204},
		{both, "/dashboard/any/snapshot", "", 401},
		{none, "/dashboard/", "", 204},
		{none, "/dashboard/any/act", "", 403},
		{none, "/dashboard/act", basic(writer), 403},
		{both, "/metrics", "Bearer an-older-token-to-read", 204},
		{both, "/v1/top-keys", "Bearer " + writer, 204},
		{both, "/v1/reset", "", 401},
		{both, "/v1/reset", "Bearer ", 401},
		{both, "/v1/reset", "Bearer " + reader, 403},
		{both, "/v1/reset", "Bearer " + writer, 204},
		{both, "/v1/force", "Bearer " + writer, 204},
		{both, "/v1/block", "Bearer " + writer[:len(writer)-1], 401},
	} {
		r := httptest.NewRequest(http.MethodPost, tt.path, nil)
		if tt.token != "" {
			r.Header.Set("Authorization", tt.token)
		}
		w := httptest.NewRecorder()
		a := newAccess(tt.of, newTrace(discard, decision.New(nil), nil))
		a.only(ok).ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s with %q: %d, want %d", tt.path, tt.token, w.Code, tt.want)
		}
		if challenge := w.Header().Get("WWW-Authenticate"); (challenge != "") != (w.Code == 401) {
			t.Errorf("%s with %q: %d has the challenge %q", tt.path, tt.token, w.Code, challenge)
		}
		if strings.Contains(w.Body.String(), "a-token") {
			t.Errorf("%s shows a token: %s", tt.path, w.Body)
		}
	}
}

// TestTokensInUse exchanges a token while the daemon runs, and then breaks the file.
func TestTokensInUse(t *testing.T) {
	file := tokenFile(t, testToken)
	url, log, _ := start(t, "--write-token-file="+file)
	reset := func() int {
		status, _ := post(t, url+"/v1/reset", `{"key":"first"}`)
		return status
	}
	if status := reset(); status != http.StatusNoContent {
		t.Fatalf("with the first token: %d", status)
	}
	write := func(tokens string) {
		if err := os.WriteFile(file, []byte(tokens), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("another-token-of-the-tests")
	for reset() != http.StatusUnauthorized {
	}
	write("short")
	for !strings.Contains(log.String(), "less than 20 bytes") {
	}
	if status := reset(); status != http.StatusUnauthorized {
		t.Errorf("with the first token after a bad file: %d", status)
	}
	if strings.Contains(log.String(), "short") || strings.Contains(log.String(), "another") ||
		regexp.MustCompile(`"credentials".*hash`).MatchString(log.String()) {
		t.Errorf("the log has a token, or a hash of tokens: %s", log)
	}
}

// TestTokenFiles: a file without a usable token ends the start.
func TestTokenFiles(t *testing.T) {
	for tokens, want := range map[string]string{
		"":                              "no token",
		"\n \n":                         "no token",
		"too-short":                     "less than 20 bytes",
		"a token with spaces in it, no": "a space",
		// What no request can send would lock out whoever has the token, with no word.
		"\x00" + testToken:              "a control character",
		"\ufeff" + testToken:            "byte order mark",
		testToken + "\n\ufeff":          "less than 20 bytes",
		testToken + "\x1b[0m":           "a control character",
		testToken + "\u00a0is-no-break": "a space",
		"\xff\xfe" + strings.Join(strings.Split(testToken, ""), "\x00"): "a control character",
	} {
		if err := newTokens(tokenFile(t, tokens)).read(); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", tokens, err, want)
		}
	}
	err := newTokens(t.TempDir() + "/missing").read()
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
}
