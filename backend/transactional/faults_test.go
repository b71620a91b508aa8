//go:build !race

package transactional_test

import (
	"testing"

	"github.com/truewindow/ratelimit/internal/testkit/planted"
)

// groupFaults are faults that are planted in the sources of group commit.
var groupFaults = []planted.Fault{
	{"results-of-another-call", "TestGroupCommit$", "decide.go",
		"	for _, c := range done {\n", `	for _, c := range done {
		if planted("results-of-another-call") {
			c.results = done[0].results
		}
`},
	{"reversed", "TestGroupCommit$", "lane.go", "	for _, c := range g.calls {\n",
		`	if planted("reversed") {
		slices.Reverse(g.calls)
	}
	for _, c := range g.calls {
`},
	{"each-from-what-was-loaded", "TestGroup(Commit|AtTheLimit)$", "decide.go",
		"		t.states[i] = s\n", `		if planted("each-from-what-was-loaded") {
			s.bytes, t.states[i].changed = t.states[i].bytes, true
			continue
		}
		t.states[i] = s
`},
	{"saved-for-each-call", "TestGroupCommit$", "decide.go",
		"	if err := tx.Save(ctx, changed); err != nil {",
		`	if planted("saved-for-each-call") {
		for range t.decided - 1 {
			_ = tx.Save(ctx, changed)
		}
	}
	if err := tx.Save(ctx, changed); err != nil {`},
	{"left-call-commits", "TestGroupLeft$", "decide.go",
		"	if !c.state.CompareAndSwap(waiting, writing) {",
		`	if !c.state.CompareAndSwap(waiting, writing) && !planted("left-call-commits") {`},
	{"error-for-all", "TestGroupNeighbours$", "decide.go",
		"t.loads && splits {", `t.loads && splits && !planted("error-for-all") {`},
	{"locks-by-arrival", "TestGroupsBesideEachOther$", "lane.go",
		"	g.keys = slices.Sorted(maps.Keys(keys))\n",
		`	g.keys = slices.Sorted(maps.Keys(keys))
	if planted("locks-by-arrival") {
		g.keys = nil
		for _, c := range g.calls {
			for _, key := range c.stored {
				if !slices.Contains(g.keys, key) {
					g.keys = append(g.keys, key)
				}
			}
		}
	}
`},
	{"call-in-two-transactions", "TestGroupBounds$", "lane.go",
		"		n := len(keys)\n",
		`		if planted("call-in-two-transactions") && len(c.demands) > 100 {
			c.demands, c.stored = c.demands[:100], c.stored[:100]
		}
		n := len(keys)
`},
	{"unknown-told-as-not-recorded", "TestGroupOutcomeUnknown$", "decide.go",
		"	t.unknown = err != nil &&",
		`	t.unknown = !planted("unknown-told-as-not-recorded") && err != nil &&`},
	{"unknown-for-all", "TestGroupOutcomeUnknown$", "decide.go",
		"	case c.state.Load() == writing:",
		`	case c.state.Load() == writing || planted("unknown-for-all"):`},
	{"refused-by-what-is-not-there", "TestGroupOutcomeUnknown$", "decide.go",
		"		if isFinal {", `		if isFinal || planted("refused-by-what-is-not-there") {`},
	{"one-key-more", "TestGroupBounds$", "lane.go", "n > maxKeys || demands > maxDemands {",
		`n > maxKeys && (n > maxKeys+1 || !planted("one-key-more")) ||
			demands > maxDemands && (demands > maxDemands+1 || !planted("one-demand-more")) {`},
	{"one-demand-more", "TestGroupBounds$", "", "", ""},
	{"no-bound-of-bytes", "TestGroupBytes$", "decide.go", "t.bytes < maxBytes;",
		`(t.bytes < maxBytes || planted("no-bound-of-bytes"));`},
}

// TestGroupFindsFaults: the tests of group commit find each fault.
func TestGroupFindsFaults(t *testing.T) {
	planted.InSource(t, ".", "transactional", groupFaults)
}
