package checks

import (
	"os/exec"
	"strings"
	"testing"
)

// TestStandardLibraryOnly checks that the packages listed here import no other module.
func TestStandardLibraryOnly(t *testing.T) {
	t.Chdir(root)
	args := []string{"list", "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{$.ImportPath}}{{end}}{{end}}",
		".", "./algorithm", "./backend/lua", "./backend/memory", "./backend/serverstore",
		"./clientip", "./conformance", "./dashboard", "./httplimit", "./httplimit/headers",
		"./layer", "./topkeys", "./upstream"}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &problems)
	}
	for _, path := range strings.Fields(string(out)) {
		t.Errorf("one of the packages imports %s, which is in another module", path)
	}
}
