package holdmodel

import (
	"fmt"

	"github.com/truewindow/ratelimit/driver"
)

// A Ledger checks what a key admits against Max and the debt: all units that were recorded or held
// whether they fit or not.
type Ledger struct {
	counted []record // each at the time at which it counts
	debt    int64
	most    int64 // the largest Max
	last    int64
	stepped bool // the clock has been set back, or parameters have changed
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return new(Ledger) }

// Note notes a demand, which p has just decided from before, and returns what is wrong.
func (l *Ledger) Note(p *Player, before Key, d driver.Demand, res driver.Result) string {
	if d.Op == driver.OpReset {
		*l = Ledger{}
		return ""
	}
	_, isLog := p.Limit.Inside.(Log)
	l.stepped = l.stepped || p.Now < l.last || l.most > 0 && l.most != p.Limit.Limit.Max
	l.last, l.most = p.Now, max(l.most, p.Limit.Limit.Max)
	var own Hold
	for _, h := range before.Holds {
		if h.ID == d.ID && h.Deadline > p.Now {
			own = h
		}
	}
	switch {
	case res.Units == 0:
	case d.Op == driver.OpTake:
		l.counted = append(l.counted, record{p.Now, res.Units})
	case d.Op == driver.OpForce:
		l.counted = append(l.counted, record{p.Now, d.N})
		l.debt += d.N
	case d.Op == driver.OpHold && own.Units == 0 && d.N == 0: // a late renewal
		l.debt += res.Units
	case d.Op == driver.OpSettle:
		held := min(d.N, own.Units)
		l.counted = append(l.counted, record{own.Instant, held}, record{p.Now, d.N - held})
		l.debt += d.N - held
	}
	if l.stepped {
		return ""
	}
	if isLog {
		window := p.Limit.Limit.Window.Microseconds()
		for _, end := range l.counted {
			sum := int64(0)
			for _, c := range l.counted {
				if end.stamp-window < c.stamp && c.stamp <= end.stamp {
					sum += c.units
				}
			}
			if sum > l.most+l.debt {
				return fmt.Sprintf("%d units in one window, the limit is %d and the debt %d", sum,
					l.most, l.debt)
			}
		}
	}
	if used, held := p.counts(); used+held > l.most+l.debt {
		return fmt.Sprintf("%d used and %d held, the limit is %d and the debt %d", used, held,
			l.most, l.debt)
	}
	return ""
}

// counts returns the units that are used now, up to Max, and those that are held.
func (p *Player) counts() (used, held int64) {
	s := step{key: p.Key.copy(), limit: p.Limit, now: p.Now}
	s.advance()
	return p.Limit.Limit.Max - s.inside(driver.OpPeek, 1, 0).Remaining, s.held(0)
}

// Show returns a result as text.
func Show(res driver.Result) string {
	return fmt.Sprintf("Allowed %t, Remaining %d, Units %d, RetryAfter %v, ResetAfter %v",
		res.Allowed, res.Remaining, res.Units, res.RetryAfter, res.ResetAfter)
}
