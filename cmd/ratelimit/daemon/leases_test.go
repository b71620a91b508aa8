package daemon

import (
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

// TestLeaseFlag: --lease is a percentage, and has a clear error.
func TestLeaseFlag(t *testing.T) {
	var f leaseFlag
	if err := f.UnmarshalText([]byte("2.5%")); err != nil || f != 0.025 {
		t.Errorf("%v, %v", f, err)
	}
	for _, text := range []string{"", "2", "-1%", "10.1%", "NaN%", "two%"} {
		if err := f.UnmarshalText([]byte(text)); err == nil ||
			!strings.Contains(err.Error(), "--lease is a percentage such as 2%") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestLeasesOfFile: a limit has its own share, or that of the flag.
func TestLeasesOfFile(t *testing.T) {
	l, err := newLeases(nothing{}, 0.02)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	own, none := 0.05, 0.0
	l.use([]*rules.Limit{{Name: "own", Lease: &own}, {Name: "none", Lease: &none}, {Name: "all"}})
	want := func(want map[string]float64) {
		t.Helper()
		for name, share := range want {
			if got := l.loss(driver.PerMinute(name, 1)); got != share {
				t.Errorf("%s has %v, want %v", name, got, share)
			}
		}
	}
	want(map[string]float64{"own": 0.05, "none": 0, "all": 0.02})
	l.use([]*rules.Limit{{Name: "none"}, {Name: "all", Lease: &own}})
	want(map[string]float64{"own": 0.02, "none": 0.02, "all": 0.05})
}

type nothing struct{ driver.Store }
