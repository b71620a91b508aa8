// Package checks tests the pages and the dependencies of the module.
package checks

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// root is the root of the module. Each test changes to it by itself: after a change of directory in
// TestMain, "go test" would not notice which files are read, and would cache the result although
// they change.
const root = "../../.."

var (
	inlineCode = regexp.MustCompile("`+[^`\n]*`+")
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// TestLinks checks that each link of a page to a file of the module, or to a heading, resolves.
func TestLinks(t *testing.T) {
	t.Chdir(root)
	anchors := make(map[string][]string)
	for _, page := range pages(t) {
		anchors[page] = headings(prose(t, page))
	}
	links := 0
	for page := range anchors {
		for _, m := range linkTarget.FindAllStringSubmatch(prose(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			file, anchor, hasAnchor := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = path.Join(path.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			} else if hasAnchor && !slices.Contains(anchors[target], anchor) {
				t.Errorf("%s links to %s: the page has no such heading", page, m[1])
			}
		}
	}
	if links == 0 {
		t.Error("found no link")
	}
}

// pages returns the pages of the module: those in its root and for GitHub, and all below docs.
func pages(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("*.md")
	for _, folder := range []string{".github", "docs"} {
		walk := func(file string, _ fs.DirEntry, err error) error {
			if filepath.Ext(file) == ".md" {
				pages = append(pages, filepath.ToSlash(file))
			}
			return err
		}
		err = errors.Join(err, filepath.WalkDir(folder, walk))
	}
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// prose returns a page without its code.
func prose(t *testing.T, page string) string {
	t.Helper()
	text := readFile(t, page)
	var b strings.Builder
	inBlock := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inBlock = !inBlock
		} else if !inBlock && strings.HasPrefix(line, "#") {
			b.WriteString(line) // code in a heading is a part of its anchor
		} else if !inBlock {
			b.WriteString(inlineCode.ReplaceAllString(line, ""))
		}
	}
	return b.String()
}

// headings returns the anchors of the headings of a page, as GitHub makes them.
func headings(text string) (anchors []string) {
	seen := make(map[string]int)
	for line := range strings.Lines(text) {
		title, isHeading := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !strings.HasPrefix(line, "#") || !isHeading {
			continue
		}
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(linkText.ReplaceAllString(title, "$1")))
		if n := seen[anchor]; n > 0 {
			anchors = append(anchors, anchor+"-"+strconv.Itoa(n))
		} else {
			anchors = append(anchors, anchor)
		}
		seen[anchor]++
	}
	return anchors
}
