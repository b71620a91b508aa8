package layer

import (
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// Locally a block is what the store inside has last said, or a later end that was set locally. Its
// units are milliseconds: they have no share, and do not add up.

var blockName = algorithm.Block{}.Name()

func isBlock(a driver.Algorithm) bool { return a.Name() == blockName }

// writes reports whether d records something if it is admitted. A take of a block does not.
func writes(d driver.Demand) bool {
	return d.Op == driver.OpForce || d.Op == driver.OpTake && !isBlock(d.Algorithm)
}

// trackBlock makes a block end locally when the store inside says that it ends. admitted reports
// whether the store has done what d asks for, and seen is the value of l.blocks before it did. If a
// block was set or lifted since, the answer may be the older one: then an OpForce can only make the
// end later, and a take or a peek changes nothing.
func (l *ledger) trackBlock(d driver.Demand, res driver.Result, admitted bool, seen int64) {
	if res.Source != driver.SourceStore { // a cached refusal may end too soon
		return
	}
	set := admitted && d.Op == driver.OpForce
	lifted := admitted && d.Op == driver.OpReset
	if !set && !lifted && res.ResetAfter == 0 {
		if known, err := l.askLocal(peekOf(d)); err != nil || known.ResetAfter == 0 {
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	newest := l.blocks.Load() == seen && l.debts[idOf(d)] == nil
	switch {
	case set, lifted:
		l.blocks.Add(1)
	case !newest:
		return
	}
	if newest || lifted {
		l.forgetLocked(d)
	}
	if lifted || res.ResetAfter == 0 {
		return
	}
	d.Op, d.N, d.At = driver.OpForce, algorithm.BlockFor(res.ResetAfter), 0
	if _, err := l.askLocal(d); err != nil {
		l.untracked.Add(1)
		if end := time.Now().Add(res.ResetAfter); end.After(l.untrackedBlock) {
			l.untrackedBlock = end
		}
	}
}

// mayBeBlockedLocked reports whether d asks about a block that may be one for which there was no
// room.
func (l *ledger) mayBeBlockedLocked(d driver.Demand) bool {
	if !isBlock(d.Algorithm) || d.Op > driver.OpPeek || !time.Now().Before(l.untrackedBlock) {
		return false
	}
	known, err := l.askLocal(peekOf(d))
	return err != nil || known.ResetAfter == 0
}
