package command

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestRunbook runs the commands of docs/operations.md for a tenant that gets 429, and compares what
// they print, without its spacing. A … stands for any word.
func TestRunbook(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	limits, err := os.ReadFile("../../../docs/limits-file.md")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "limits.yaml")
	apitest.WriteFile(t, file, string(apitest.YAMLBlock.FindSubmatch(limits)[1]))
	url, log, _ := start(t, "--config="+file, "--top-keys=10", "--log-decisions=1")
	t.Setenv("RATELIMIT_URL", url)
	t.Setenv("RATELIMIT_TOKEN_FILE", apitest.TokenFile(t, apitest.Token+"\n"))
	take := func(units string, want int) {
		t.Helper()
		code, stdout, stderr := command(t, "take", "--units="+units, "tenant=acme", "plan=pro")
		if code != want {
			t.Errorf("exit code %d, want %d: %s%s", code, want, stdout, stderr)
		}
	}
	take("10000", exitOK)
	take("1", exitRefused)

	var printed []string
	commands := "\n" + string(apitest.ConsoleBlock.FindSubmatch(page)[1])
	for _, example := range strings.Split(commands, "\n$ ")[1:] {
		line, want, _ := strings.Cut(example, "\n")
		got := shell(t, strings.ReplaceAll(line, "http://localhost:8080", url), url)
		pattern := strings.ReplaceAll(regexp.QuoteMeta(words(want)), "…", `[^ "]+`)
		if !regexp.MustCompile("^" + pattern + "$").MatchString(words(got)) {
			t.Errorf("%s\ngot\n%s\nwant\n%s", line, got, want)
		}
		printed = append(printed, got)
	}
	take("10000", exitOK)
	hash := regexp.MustCompile(`\b[0-9a-f]{32}\b`).FindString(printed[0])
	logged := `"refused_by":["units"],"limits":["units"],"sources":["store"],"key_hashes":["` +
		hash + `"]`
	if hash == "" || !strings.Contains(strings.Join(printed[1:], ""), hash) ||
		!strings.Contains(log.String(), logged) {
		t.Errorf("the hash %q is not in the list, or not in the log:\n%s", hash, log)
	}
}

// shell runs a command of ratelimit, or gets a path of the service, and returns what it prints.
func shell(t *testing.T, line, url string) string {
	t.Helper()
	if path, ok := strings.CutPrefix(line, "curl -s localhost:8080"); ok {
		res, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	_, stdout, stderr := command(t, strings.Fields(strings.TrimPrefix(line, "ratelimit "))...)
	return stdout + stderr
}

// words returns text with one space where it has any.
func words(text string) string {
	for _, mark := range []string{"{", "}", "[", "]", ":", ","} {
		text = strings.ReplaceAll(text, mark, " "+mark+" ")
	}
	return strings.Join(strings.Fields(text), " ")
}
