package rules

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
)

var firstCell = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

// TestPage: the tables of docs/limits-file.md have the keys and the algorithms that files have.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/limits-file.md")
	if err != nil {
		t.Fatal(err)
	}
	for heading, want := range map[string][]string{
		"Keys of the file": mainKeys, "Keys of a limit": limitKeys,
		"Algorithms": algorithms.OfService(),
	} {
		_, section, _ := strings.Cut(string(page), "\n## "+heading+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		var got []string
		for _, m := range firstCell.FindAllStringSubmatch(section, -1) {
			got = append(got, m[1])
		}
		if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
			t.Errorf("%s: the table has %q, want %q", heading, got, want)
		}
	}
}
