package conformance

import "testing"

// Stores and the runner for the tests that import package linear, which imports this package.
var (
	NewReference  = newReference(bugs{})
	NewLostUpdate = newReference(lostUpdate)
)

// Try returns how the store breaks the rule of that name.
func Try(t testing.TB, newStore NewStore, opts *Options, name string) error {
	t.Helper()
	for _, r := range rules() {
		if r.name == name {
			_, err := newSuite(opts).try(t, newStore, r)
			return err
		}
	}
	t.Fatalf("there is no rule %q", name)
	return nil
}
