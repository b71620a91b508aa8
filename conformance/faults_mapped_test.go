//go:build unix

package conformance

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// mapped returns a copy of b in memory that cannot be written, like that of a database that maps
// its file.
func mapped(t testing.TB, b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	m, err := syscall.Mmap(-1, 0, len(b), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	copy(m, b)
	if err := syscall.Mprotect(m, syscall.PROT_READ); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	return m[:len(b):len(b)]
}

// TestMappedStates: the suite reports a store that passes read-only bytes to Step, by the rule for
// it and by those before it.
func TestMappedStates(t *testing.T) {
	newStore := newReference(bugs{demand: func(
		r *reference, d driver.Demand, now int64,
	) (driver.Demand, int64) {
		d.Algorithm = lending{d.Algorithm, t}
		return d, now
	}})
	for _, name := range []string{"step/own-bytes", "op/take", "identity/parameters",
		"concurrency/count"} {
		if err := tryRule(t, newStore, nil, name); err == nil ||
			!strings.Contains(err.Error(), "pass a copy") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// lending is an algorithm that gets its state from a store that lends what it has mapped.
type lending struct {
	driver.Algorithm
	t testing.TB
}

func (l lending) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	d.Algorithm = l.Algorithm
	return l.Algorithm.Step(mapped(l.t, state), now, d)
}
