package rules

import (
	"fmt"
	"time"
)

// Idle returns what of a limit matches no request at a time: conditions on files without values,
// and exceptions that are over, in one problem.
func (l *Limit) Idle(now time.Time) (problems Problems) {
	empty := func(at Position, conditions []Condition) {
		for _, c := range conditions {
			if c.Among != nil && c.Among.Empty() {
				problems = append(problems, Problem{At: at, Text: fmt.Sprintf(
					"%q is for %v, which has no values: no request matches", l.Name, c)})
			}
		}
	}
	empty(l.At, l.When)
	var first *Exception
	over := 0
	for i := range l.Except {
		e := &l.Except[i]
		empty(e.At, e.When)
		if !e.Over(now) {
			continue
		}
		if over++; first == nil {
			first = e
		}
	}
	if first != nil {
		text := fmt.Sprintf("an exception of %q is over: %v", l.Name, first)
		if over > 1 {
			text = fmt.Sprintf("%d exceptions of %q are over, such as %v", over, l.Name, first)
		}
		problems = append(problems, Problem{At: first.At, Text: text})
	}
	return problems
}
