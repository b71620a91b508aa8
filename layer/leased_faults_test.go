//go:build !race

package layer_test

import (
	"testing"

	"github.com/truewindow/ratelimit/internal/testkit/planted"
)

// leaseFaults are faults that are planted in the sources of leases.
var leaseFaults = []planted.Fault{
	{"no-lead", "TestLeasedNeverAbove$", "lease.go",
		"	return d\n}\n\n// end learns", `	if planted("no-lead") {
		d.Algorithm = c.state.algorithm
	}
	return d
}

// end learns`},
	{"lease-from-answer", "TestLeasedNeverAbove$", "lease.go",
		"		free := &s.leases[0]", `		if planted("lease-from-answer") {
			l.asked = now
		}
		if planted("whole-window") {
			l.lasts = s.terms.limit.Window
		}
		if planted("beyond-reset") {
			l.lasts = leaseLasts(s.terms.lead, s.terms.lead)
		}
		free := &s.leases[0]`},
	{"whole-window", "TestLeasedNeverAbove$", "", "", ""},
	{"beyond-reset", "TestLeasedNeverAbove$", "", "", ""},
	{"lease-without-end", "TestLeasedEnds$", "lease.go",
		"		ended := now.since(l.asked) >= l.lasts\n",
		`		ended := now.since(l.asked) >= l.lasts && !planted("lease-without-end")
`},
	{"second-lease-without-end", "TestLeasedEnds$", "lease.go",
		"		if l.serial != 0 && (ended ||",
		`		if planted("second-lease-without-end") && i == 1 {
			ended = false
		}
		if l.serial != 0 && (ended ||`},
	{"guard-one", "TestLeasedNeverAbove$", "lease.go",
		"	return (min(lead, resetAfter) - time.Microsecond) * 4 / 5",
		`	if planted("guard-one") {
		return min(lead, resetAfter)
	}
	return (min(lead, resetAfter) - time.Microsecond) * 4 / 5`},
	{"monotonic-only", "TestLeasedClocks$", "lease.go",
		"	return time.Duration(max(t.monotonic-u.monotonic, t.wall-u.wall))",
		`	if planted("monotonic-only") {
		return time.Duration(t.monotonic - u.monotonic)
	}
	if planted("wall-only") {
		return time.Duration(t.wall - u.wall)
	}
	return time.Duration(max(t.monotonic-u.monotonic, t.wall-u.wall))`},
	{"wall-only", "TestLeasedClocks$", "", "", ""},
	{"spent-twice", "TestLeasedNeverAbove$", "lease.go",
		"		n -= from[i].units\n", `		n -= from[i].units
		if planted("spent-twice") {
			s.leases[i].units += from[i].units / 2
		}
`},
	{"unknown-chunk-used", "TestLeasedNeverAbove$", "lease.go",
		"		if errors.Is(err, driver.ErrOutcomeUnknown) {\n",
		`		if planted("unknown-chunk-used") && c.ahead > 0 {
			s.serial++
			s.leases[1] = lease{s.serial, c.ahead, c.asked, leaseLasts(s.terms.lead, s.terms.lead)}
			return c.ahead
		}
		if errors.Is(err, driver.ErrOutcomeUnknown) {
`},
	{"local-chunk-leased", "TestLeasedNeverAbove$", "lease.go",
		"	if res.Source != driver.SourceStore {",
		`	if res.Source != driver.SourceStore && !planted("local-chunk-leased") {`},
	{"other-max", "TestLeasedOtherLimit$", "leased.go",
		"	state := s.states[id]\n	terms, known",
		`	state := s.states[id]
	if planted("other-max") {
		for other, its := range s.states {
			if other.key == id.key && other.algorithm.Limit().Name == a.Limit().Name {
				state = its
			}
		}
	}
	terms, known`},
	{"reset-keeps-lease", "TestLeasedReset$", "leased.go",
		"			state.stop(s.clock)\n			states = append",
		`			if planted("reset-keeps-lease") {
				continue
			}
			state.stop(s.clock)
			states = append`},
	{"lease-beside-reset", "TestLeasedResetBeside$", "lease.go",
		"	if s.stopped > 0 || s.asked > 0",
		`	if s.stopped > 0 && !planted("lease-beside-reset") || s.asked > 0`},
	{"reset-beside-chunk", "TestLeasedResetBeside$", "lease.go",
		"	s.asked -= c.ahead\n", `	s.asked -= c.ahead
	if planted("reset-beside-chunk") {
		c.epoch = s.epoch
	}
`},
	{"put-back-into-later-lease", "TestLeasedPutBack$", "lease.go",
		"		default:\n			s.loseLocked(now, f.units)\n",
		`		case planted("put-back-into-later-lease") && s.leases[0].serial != 0:
			s.leases[0].units += f.units
		default:
			s.loseLocked(now, f.units)
`},
	{"part-of-takeall", "TestLeasedTakeAll$", "leased.go",
		"	if rest > 0 {\n		admitted, err = s.askRest",
		`	if planted("part-of-takeall") && rest < len(ds) {
		for i := range ds {
			if parts[i].said == askStore {
				out[i] = driver.Result{Allowed: true, Source: driver.SourceLease, Units: ds[i].N}
			}
		}
		return nil
	}
	if rest > 0 {
		admitted, err = s.askRest`},
	{"aside-not-risk", "TestLeasedAside$", "lease.go",
		"	credit := int64(", `	if planted("aside-not-risk") {
		risk -= s.aside
	}
	credit := int64(`},
	{"credit-off", "TestLeased(Damage|HardlyBelow)$", "lease.go",
		"	m := s.usage.rate", `	if planted("credit-off") {
		credit = 1 << 40
	}
	m := s.usage.rate`},
	{"lost-forgotten", "TestLeasedHardlyBelow$", "leaseusage.go",
		"	for _, units := range u.losses {\n",
		`	if planted("lost-forgotten") {
		return 0
	}
	for _, units := range u.losses {
`},
	{"refusal-of-fewer-units", "TestLeasedHardlyBelow$", "lease.go",
		"	return r.lasts > 0 && n >= r.units &&",
		`	if planted("refusal-of-fewer-units") {
		n = max(n, r.units)
	}
	return r.lasts > 0 && n >= r.units &&`},
	{"refusal-beyond-lead", "TestLeasedHardlyBelow$", "lease.go",
		"		s.refusal = refusal{n, c.asked, wholeMicros(lasts)",
		`		if planted("refusal-beyond-lead") {
			lasts = s.terms.limit.Window
		}
		s.refusal = refusal{n, c.asked, wholeMicros(lasts)`},
	{"breaker-closed-by-lease", "TestLeasedIsNoAnswer$", "verdict.go",
		"	return res.Source != driver.SourceCache && ",
		`	return res.Source != driver.SourceCache && planted("breaker-closed-by-lease") ||
		res.Source != driver.SourceCache && `},
	{"key-of-caller", "TestLeasedKeepsNoKey$", "leased.go", "	id.key = strings.Clone(id.key)\n",
		`	if !planted("key-of-caller") {
		id.key = strings.Clone(id.key)
	}
`},
}

// TestLeasedFindsFaults: the tests of leases find each fault.
func TestLeasedFindsFaults(t *testing.T) { planted.InSource(t, ".", "layer", leaseFaults) }
