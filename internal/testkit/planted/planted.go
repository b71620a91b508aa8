// Package planted tests that the conformance suite finds faults that are planted in a store.
package planted

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// tries is how often the suite runs: it may miss a race now and then.
const tries = 5

// WantCaught runs a rule of TestConformance of this binary in a process with env added to its
// environment, and fails t unless the rule fails. It also fails t if the output has a text of
// broken: then the planted code does not run at all, as with a misspelled SQL statement.
func WantCaught(t *testing.T, rule string, broken []string, env ...string) {
	t.Helper()
	var out []byte
	for range tries {
		suite := exec.CommandContext(t.Context(), os.Args[0], "-test.count=1",
			"-test.run=^TestConformance$/^"+strings.ReplaceAll(rule, "/", "$/^")+"$")
		suite.Env = append(os.Environ(), env...)
		var err error
		out, err = suite.CombinedOutput()
		for _, text := range broken {
			if strings.Contains(string(out), text) {
				t.Fatalf("the planted code does not run:\n%s", out)
			}
		}
		if err != nil && strings.Contains(string(out), "The rule "+rule+":") {
			return
		}
	}
	t.Errorf("the suite does not catch it by %s:\n%s", rule, out)
}
