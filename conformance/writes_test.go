package conformance

import (
	"strings"
	"testing"
)

// TestWithoutWrites checks that the rules that count writes are skipped where they cannot be
// counted.
func TestWithoutWrites(t *testing.T) {
	withoutWrites := func(t testing.TB, now func() int64) Harness {
		h := newReference(bugs{})(t, now)
		h.Writes = nil
		return h
	}
	s := newSuite(nil)
	counting := 0
	for _, r := range rules() {
		if r.needs&counts == 0 {
			if strings.HasPrefix(r.name, "step/") && strings.HasSuffix(r.name, "-nothing") {
				t.Errorf("%s does not need Writes", r.name)
			}
			continue
		}
		counting++
		if skipped, err := s.try(t, withoutWrites, r); err != nil ||
			!strings.Contains(skipped, "Writes") {
			t.Errorf("%s is skipped because of %q, error %v", r.name, skipped, err)
		}
	}
	if counting < 7 {
		t.Errorf("only %d rules count writes", counting)
	}
}

// TestKeysAndClocksVary checks that a store cannot recognize the suite by its keys or by the start
// of its clock.
func TestKeysAndClocksVary(t *testing.T) {
	seen := make(map[string]bool)
	years := make(map[int64]bool)
	for seed := range uint64(100) {
		e := &env{prefix: "P", seed: seed}
		for range shapes {
			key := e.key()
			seen[key[:strings.LastIndexByte(key, '-')]] = true
		}
		years[begin(seed)/31_556_952_000_000] = true
	}
	if len(seen) != len(shapes) || len(years) < 50 {
		t.Errorf("keys have %d shapes, and clocks start in %d years", len(seen), len(years))
	}
}
