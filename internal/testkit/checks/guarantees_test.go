package checks

import (
	"regexp"
	"strings"
	"testing"
)

var (
	inBackquotes = regexp.MustCompile("`([^`\n]+)`")
	ruleName     = regexp.MustCompile(`\bname: "([a-z-]+)/[a-z-]+"`)
	wholeGroup   = regexp.MustCompile("[Aa]ll of `([a-z-]+)`")
	testFunc     = regexp.MustCompile(`^Test[A-Z]\w*$`)
)

// TestGuaranteesAreProved checks that the cases of the conformance suite and the tests that
// docs/guarantees.md names exist.
func TestGuaranteesAreProved(t *testing.T) {
	t.Chdir(root)
	text := readFile(t, "docs/guarantees.md")
	sources := goSources(t)
	groups := make(map[string]bool)
	for _, m := range ruleName.FindAllStringSubmatch(sources, -1) {
		groups[m[1]] = true
	}
	cases, tests := 0, 0
	for _, m := range inBackquotes.FindAllStringSubmatch(text, -1) {
		name := m[1]
		group, _, isCase := strings.Cut(name, "/")
		switch {
		case isCase && groups[group]:
			cases++
			if !strings.Contains(sources, `name: "`+name+`"`) {
				t.Errorf("the conformance suite has no case %s", name)
			}
		case testFunc.MatchString(name):
			tests++
			if !strings.Contains(sources, "\nfunc "+name+"(") {
				t.Errorf("there is no test %s", name)
			}
		}
	}
	for _, m := range wholeGroup.FindAllStringSubmatch(text, -1) {
		if !groups[m[1]] {
			t.Errorf("the conformance suite has no group %s", m[1])
		}
	}
	if cases == 0 || tests == 0 {
		t.Errorf("found %d cases and %d tests", cases, tests)
	}
}
