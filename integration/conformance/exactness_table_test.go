package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
)

// exactnessTable has a line for each algorithm, and the servers of the stores, which all gave the
// same results.
func exactnessTable(verdicts map[string]verdict, stores []string) string {
	var b strings.Builder
	b.WriteString("| algorithm | most in any window ÷ limit | refusals | wrong refusals |\n")
	b.WriteString("|---|---|---|---|\n")
	for _, name := range algorithms.Names() {
		v := verdicts[name]
		fmt.Fprintf(&b, "| `%s` | %.2f | %d | %.1f %% |\n", name, v.most, v.refusals,
			100*float64(v.wrong)/float64(v.refusals))
	}
	var on []string
	for _, store := range stores {
		if _, server, ok := strings.Cut(store, " on "); ok && !slices.Contains(on, server) {
			on = append(on, server)
		}
	}
	slices.Sort(on)
	fmt.Fprintf(&b,
		"\nThe same on each of %d stores: memory, and each client library, also with cached "+
			"refusals, on\n%s.\n", len(stores), strings.Join(on, ", "))
	return b.String()
}
