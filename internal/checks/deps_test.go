package checks

import (
	"os/exec"
	"strings"
	"testing"
)

// TestStandardLibraryOnly guards the packages that a user gets without a client: none of them needs
// a module besides this one.
func TestStandardLibraryOnly(t *testing.T) {
	t.Chdir(root)
	args := []string{"list", "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{$.ImportPath}}{{end}}{{end}}",
		".", "./algorithm", "./backend/lua", "./backend/memory", "./backend/serverstore",
		"./clientip", "./conformance", "./httplimit", "./httplimit/headers",
		"./layer", "./topkeys", "./upstream"}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &problems)
	}
	for _, path := range strings.Fields(string(out)) {
		t.Errorf("imports %s", path)
	}
}
