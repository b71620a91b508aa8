package yamlfile

import (
	"bytes"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// misplaced begins the errors of package yaml whose line is counted from 0, and may be that on
// which the list or map of the error begins.
const misplaced = "did not find expected "

// longestSearch is the size in bytes up to which the line of such an error is searched for.
const longestSearch = 1 << 20

// syntaxError returns the line of an error of package yaml in a document, from 1, and its text.
func syntaxError(data []byte, err error) (line int, text string) {
	line, text = splitError(err)
	lines := slices.Collect(bytes.Lines(data))
	if strings.HasPrefix(text, misplaced) {
		if line++; len(data) <= longestSearch {
			line = firstLine(lines, line, text)
		}
	}
	return max(1, min(line, len(lines))), text
}

// firstLine returns the first line, of those from a line on, that makes the lines up to it wrong in
// the same way as all are. It returns from if all are not, as in a second document.
func firstLine(lines [][]byte, from int, text string) int {
	wrong := func(end int) bool {
		err := yaml.Unmarshal(bytes.Join(lines[:end], nil), new(yaml.Node))
		if err == nil {
			return false
		}
		_, got := splitError(err)
		return got == text
	}
	if from >= len(lines) || !wrong(len(lines)) {
		return from
	}
	return from + sort.Search(len(lines)-from, func(i int) bool { return wrong(from + i) })
}

// quotation is what an error of package yaml quotes of a document, which may be no file of limits.
var quotation = regexp.MustCompile(`(anchor) '[^']*'`)

var syntaxLine = regexp.MustCompile(`^line (\d+): `)

// splitError returns the line in the text of an error of package yaml, or 0, and the rest.
func splitError(err error) (line int, text string) {
	text = strings.TrimPrefix(err.Error(), "yaml: ")
	if m := syntaxLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	return line, quotation.ReplaceAllString(text, "$1")
}
