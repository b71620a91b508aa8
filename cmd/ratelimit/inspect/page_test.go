package inspect

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fileBlock    = regexp.MustCompile("(?ms)^```(?:yaml|text)\n(.*?)^```$")
	consoleBlock = regexp.MustCompile("(?ms)^```console\n\\$ ratelimit (.*?)\n(.*?)^```$")
)

// TestLimitsPage: the files of docs/limits-file.md are valid, and its command prints what the page
// says. A file that others name begins with a comment, its name.
func TestLimitsPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/limits-file.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	var files []string
	for _, m := range fileBlock.FindAllStringSubmatch(string(page), -1) {
		name, isIncluded := strings.CutPrefix(m[1], "# ")
		if !isIncluded {
			files = append(files, m[1])
			continue
		}
		name, _, _ = strings.Cut(name, "\n")
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		writeTo(t, name, m[1])
	}
	if len(files) < 3 {
		t.Fatalf("%d files", len(files))
	}
	for _, text := range files {
		writeTo(t, "limits.yaml", text)
		if out, err := run(t, "validate", "limits.yaml"); err != nil {
			t.Errorf("%v\n%s\n%s", err, out, text)
		}
	}
	writeTo(t, "limits.yaml", files[0])
	example := consoleBlock.FindSubmatch(page)
	if example == nil {
		t.Fatal("there is no command")
	}
	out, err := run(t, strings.Fields(string(example[1]))...)
	if err != nil || out != string(example[2]) {
		t.Errorf("%s prints\n%s%v, want\n%s", example[1], out, err, example[2])
	}
}

func writeTo(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
