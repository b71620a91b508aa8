//go:build !race

package connectlimit_test

import "testing"

// The race detector drops pooled values at random, so the test runs only without it.
func TestGuardAllocations(t *testing.T) {
	call := intercepted(t.Context(), manyUnits(t))
	if n := testing.AllocsPerRun(200, call); n > 2 {
		t.Errorf("a unary call allocates %v times more than without limits, want 2 at most", n)
	}
}
