package checks

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocsCode checks the Go code of the pages. A block that begins with a package clause, or with
// comments and a package clause, is vetted as a program, and run if it says after "// Output:" what
// it prints. The lines of any other block are consecutive lines of some Go file in this repository,
// such as a tested example; only the indentation may differ.
func TestDocsCode(t *testing.T) {
	t.Chdir(root)
	sources := goSources(t)
	blocks := 0
	for _, name := range pages(t) {
		text := readFile(t, name)
		for _, b := range goBlocks(text) {
			blocks++
			if b.isFile() {
				vet(t, name, b)
				runProgram(t, name, b)
			} else if !strings.Contains(sources, "\n"+unindent(b.code)) {
				t.Errorf("%s:%d: the lines of this block are in no Go file of the module:\n%s",
					name, b.line, b.code)
			}
		}
	}
	if blocks == 0 {
		t.Error("found no block of Go code")
	}
}

type block struct {
	line int // of the fence
	code string
}

// goBlocks returns the blocks fenced as go, also those inside of lists.
func goBlocks(markdown string) (blocks []block) {
	var b *block
	for i, line := range strings.Split(markdown, "\n") {
		switch fence := strings.TrimSpace(line); {
		case b == nil && fence == "```go":
			b = &block{line: i + 1}
		case b != nil && fence == "```":
			blocks = append(blocks, *b)
			b = nil
		case b != nil:
			b.code += line + "\n"
		}
	}
	return blocks
}

func (b block) isFile() bool {
	for line := range strings.Lines(b.code) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			return strings.HasPrefix(line, "package ")
		}
	}
	return false
}

func vet(t *testing.T, name string, b block) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(b.code), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "vet", file).
		CombinedOutput(); err != nil {
		t.Errorf("%s:%d: %v\n%s", name, b.line, err, out)
	}
}

func runProgram(t *testing.T, name string, b block) {
	t.Helper()
	_, want, ok := strings.Cut(b.code, "// Output: ")
	if !ok {
		return
	}
	want, _, _ = strings.Cut(want, "\n")
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(b.code), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "run", file).CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != want {
		t.Errorf("%s:%d: the program prints %q and %v, want %q", name, b.line, got, err, want)
	}
}

// goSources returns all Go code of the module without indentation and blank lines.
func goSources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		all.WriteString("\n" + unindent(readFile(t, path)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func unindent(code string) string {
	var lines strings.Builder
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			lines.WriteString(line + "\n")
		}
	}
	return lines.String()
}
