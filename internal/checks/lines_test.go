package checks

import (
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns bounds the lines of text files; a tab counts 4. The linter checks the Go files.
const maxColumns = 100

// TestLinesAreShort checks that no line is longer than maxColumns, except in pictures, data, and
// the tables, code and pictures of pages.
func TestLinesAreShort(t *testing.T) {
	t.Chdir(root)
	skipped := []string{".git", "testdata", "measured"}
	files := 0
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(skipped, entry.Name()):
			return fs.SkipDir
		case !entry.Type().IsRegular() || !isProseOrCode(file):
			return nil
		}
		files++
		text := readFile(t, file)
		for i, n := range longLines(text, path.Ext(file) == ".md") {
			t.Errorf("%s:%d: the line has %d columns", file, i, n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 50 {
		t.Errorf("only %d files", files)
	}
}

func isProseOrCode(file string) bool {
	switch path.Ext(file) {
	case ".md", ".lua", ".sh", ".yml", ".mod":
		return !strings.HasSuffix(file, "_test.yml") // test data
	}
	return slices.Contains([]string{"Makefile", "run", "LICENSE", ".gitignore"}, path.Base(file))
}

// longLines returns the columns of the lines that have too many, by number from 1.
func longLines(text string, page bool) map[int]int {
	long := make(map[int]int)
	code := false
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(line, "\n")
		inner := strings.TrimLeft(line, " ")
		if page && strings.HasPrefix(inner, "```") {
			code = !code
		}
		if page && (code || strings.HasPrefix(inner, "|") || strings.HasPrefix(inner, "![")) {
			continue
		}
		n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
		if n > maxColumns {
			long[number] = n
		}
	}
	return long
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("é", maxColumns+1)
	text := "\t" + long[2*5:] + "\n" + long + "\n```\n" + long + "\n```\n| " + long + "\n"
	for page, want := range map[bool][]int{true: {2}, false: {2, 4, 6}} {
		var got []int
		for number := range longLines(text, page) {
			got = append(got, number)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("page %t: lines %v, want %v", page, got, want)
		}
	}
}
