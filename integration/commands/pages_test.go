package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

// pageArgs returns the arguments of the command of a page that begins with program, in which old is
// replaced by new, as strings.NewReplacer does.
func pageArgs(t *testing.T, page, program string, oldnew ...string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(servers.Module, filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n"+program)
	if !ok {
		t.Fatalf("%s does not have the command %q", page, program)
	}
	args, _, _ := strings.Cut(rest, "\n")
	replacer := strings.NewReplacer(append([]string{"'", ""}, oldnew...)...)
	return strings.Fields(replacer.Replace(args))
}
