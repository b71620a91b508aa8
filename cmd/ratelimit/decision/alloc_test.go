//go:build !race

package decision_test

import (
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

// maxAllocs is for a descriptor with two limits: two of AllowAll, the parts and the
// statuses.
const maxAllocs = 4

// TestAllocations is left out under the race detector, which makes pools forget.
func TestAllocations(t *testing.T) {
	d := newDecider(t, newStore(t), []*rules.Limit{
		tenantLimit("minute", driver.MaxUnits), tenantLimit("day", driver.MaxUnits)})
	requests := []decision.Request{acme(1)}
	decide := func() {
		if _, err := d.Decide(t.Context(), requests, decision.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	decide()
	if got := testing.AllocsPerRun(100, decide); got > maxAllocs {
		t.Errorf("%v allocations, want at most %d", got, maxAllocs)
	}
}
