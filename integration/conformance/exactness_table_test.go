package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
)

// exactnessTable has a line for each algorithm, and the list of stores, which all gave the same
// results.
func exactnessTable(verdicts map[string]verdict, stores []string) string {
	var b strings.Builder
	b.WriteString("| algorithm | most in any window ÷ limit | refusals | wrong refusals |\n")
	b.WriteString("|---|---|---|---|\n")
	for _, name := range algorithms.Names() {
		v := verdicts[name]
		fmt.Fprintf(&b, "| `%s` | %.2f | %d | %.1f %% |\n", name, v.most, v.refusals,
			100*float64(v.wrong)/float64(v.refusals))
	}
	slices.Sort(stores)
	fmt.Fprintf(&b, "\nThe same on each of %d stores:\n", len(stores))
	last := ""
	for _, store := range stores {
		library, server, _ := strings.Cut(store, " on ")
		switch {
		case library == last:
			fmt.Fprintf(&b, ", %s", server)
		case server == "":
			fmt.Fprintf(&b, "\n- %s", library)
		default:
			fmt.Fprintf(&b, "\n- %s on %s", library, server)
		}
		last = library
	}
	b.WriteByte('\n')
	return b.String()
}
