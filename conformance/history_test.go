package conformance

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"
)

var errNoOrder = errors.New("no order explains the results")

// search looks for an order that explains a history by trying all. Package linear does so better, but importing it here would make its
// dependency one of everybody's who imports this package.
type search struct {
	clients map[int][]Operation
	failed  map[string]bool
}

func checkOrder(history []Operation) error {
	s := search{make(map[int][]Operation), make(map[string]bool)}
	for _, op := range history {
		s.clients[op.Client] = append(s.clients[op.Client], op)
	}
	if !s.from(make([]int, len(s.clients)), newModel(0)) {
		return errNoOrder
	}
	return nil
}

// from tells whether what is left of each client's calls, from done on, has an order after what m has seen.
func (s search) from(done []int, m *model) bool {
	first := time.Duration(math.MaxInt64) // return of the call that returned first
	for c, n := range done {
		if n < len(s.clients[c]) {
			first = min(first, s.clients[c][n].Return)
		}
	}
	if first == math.MaxInt64 {
		return true
	}
	at := fmt.Sprint(done, m.states)
	if s.failed[at] {
		return false
	}
	for c, n := range done {
		if n == len(s.clients[c]) || s.clients[c][n].Call > first {
			continue
		}
		op := s.clients[c][n]
		after := &model{now: op.Now, states: maps.Clone(m.states)}
		results, writes := after.decide(op.Demands)
		if !slices.Equal(results, op.Results) {
			continue
		}
		after.commit(writes)
		next := slices.Clone(done)
		next[c]++
		if s.from(next, after) {
			return true
		}
	}
	s.failed[at] = true
	return false
}

// TestHistories: the rules that record histories hand them to the check, and fail with what it returns.
func TestHistories(t *testing.T) {
	opts := &Options{CheckHistory: checkOrder}
	for _, name := range []string{"concurrency/history", "concurrency/history-two-clients"} {
		if err := tryRule(t, newReference(bugs{}), opts, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := tryRule(t, newReference(lostUpdate), opts, name); !errors.Is(err, errNoOrder) {
			t.Errorf("%s of a store that loses updates: %v, want %v", name, err, errNoOrder)
		}
	}
}

// tryRule returns how the store breaks the rule of that name.
func tryRule(t testing.TB, newStore NewStore, opts *Options, name string) error {
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
