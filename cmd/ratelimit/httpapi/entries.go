package httpapi

import (
	"fmt"
	"slices"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// CheckEntries returns an error for an entry of --entry that no request would have, since it has
// another one of that name.
func CheckEntries(entries []EntryFlag) error {
	for i, e := range entries {
		if slices.Contains(rules.ForwardedEntries, e.name) {
			return fmt.Errorf("--entry=%s=%s: every request has the entry %s already; give that "+
				"of %s another name", e.name, e.source, e.name, e.source)
		}
		for _, earlier := range entries[:i] {
			if earlier.name == e.name {
				return fmt.Errorf("--entry=%s=%s: %s is an entry of %s already; give each its own "+
					"name", e.name, e.source, e.name, earlier.source)
			}
		}
	}
	return nil
}
