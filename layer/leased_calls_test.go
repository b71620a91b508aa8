//go:build !race

package layer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
	"github.com/truewindow/ratelimit/internal/testkit/fleet"
	"github.com/truewindow/ratelimit/layer"
)

func leasedInside(server driver.Store) (driver.Store, func(), error) {
	s, err := layer.NewLeased(server, nil)
	if err != nil {
		return nil, nil, err
	}
	return s, func() { s.Close() }, nil
}

// TestLeasedCalls: a limit that many processes share needs few calls of the store, is used up, and
// never exceeded.
func TestLeasedCalls(t *testing.T) {
	for _, tt := range []struct {
		max       int64
		processes int
		demand    float64
		block     bool
		calls     float64 // at most, a decision; 0: any
		always    bool    // not only at full depth
	}{
		{6_000, 2, 0.9, false, 0, false},
		{6_000, 2, 1.5, false, 0, false},
		{6_000, 8, 0.9, false, 0, false},
		{6_000, 8, 1.5, false, 0, false},
		{6_000, 32, 0.9, false, 0, false},
		{6_000, 32, 1.5, false, 0, false},
		{60_000, 2, 0.9, false, 1. / 30, false},
		{60_000, 2, 1.5, false, 1. / 30, false},
		{60_000, 8, 0.9, false, 1. / 30, true},
		{60_000, 8, 1.5, false, 1. / 30, true},
		{60_000, 32, 0.9, false, 0, false},
		{60_000, 32, 1.5, false, 0, false},
		{1_000_000, 2, 0.9, false, 1. / 600, false},
		{1_000_000, 2, 1.5, false, 1. / 600, false},
		{1_000_000, 8, 0.9, false, 1. / 600, false},
		{1_000_000, 8, 1.5, false, 1. / 600, false},
		{1_000_000, 32, 0.9, false, 1. / 160, false},
		{1_000_000, 32, 1.5, false, 1. / 160, false},
		{60_000, 8, 0.9, true, 0, false},
		{60_000, 8, 1.5, true, 0, false},
		{1_000_000, 2, 0.9, true, 0, false},
		{1_000_000, 8, 1.5, true, 0, false},
	} {
		if !tt.always && !depth.Full {
			continue
		}
		name := fmt.Sprintf("max=%d/processes=%d/demand=%v/block=%v", tt.max, tt.processes,
			tt.demand, tt.block)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fleet.Fleet{Processes: tt.processes, Limit: driver.PerMinute("many", tt.max),
				Demand: tt.demand, Open: leasedInside, Warm: 70 * time.Second,
				Measure: time.Minute}
			if tt.block {
				f.Beside = algorithm.Blocking("blocked", time.Hour)
			}
			got := fleet.Run(t, f)
			t.Logf("%.5f calls of the store a decision, 1 of %.0f; used %.4f, worst %.6f",
				got.PerDecision(), 1/got.PerDecision(), got.Used, got.Worst)
			if tt.calls > 0 && got.PerDecision() > tt.calls {
				t.Errorf("%.5f calls of the store a decision, want at most %.5f",
					got.PerDecision(), tt.calls)
			}
			if least := min(tt.demand, 1) * 0.97; got.Used < least {
				t.Errorf("used %.4f of the limit, want %.4f", got.Used, least)
			}
			if got.Worst > 1 {
				t.Errorf("a window has %.6f of Max", got.Worst)
			}
		})
	}
}
