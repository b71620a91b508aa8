package command

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestTokensInUse exchanges a token while the daemon runs, and then breaks the file.
func TestTokensInUse(t *testing.T) {
	file := apitest.TokenFile(t, apitest.Token)
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
