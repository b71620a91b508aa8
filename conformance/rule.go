package conformance

import (
	"strings"
)

// A rule is a named case.
type rule struct {
	name  string // group/name
	says  string // the sentences of the contract that it proves
	needs needs
	check func(*env)
}

func (r rule) group() string {
	group, _, _ := strings.Cut(r.name, "/")
	return group
}

// needs is what a case requires besides a store on the case's clock.
type needs uint16

const (
	ownClock needs = 1 << iota // a store on its own clock instead
	second
	dropScripts
	closing
	history
	counts // writes
)

// missing returns what a harness lacks, or "".
func (n needs) missing(h Harness, s *suite) string {
	switch {
	case n&second != 0 && h.Second == nil:
		return "the harness has no Second"
	case n&dropScripts != 0 && h.DropScripts == nil:
		return "the harness has no DropScripts"
	case n&closing != 0 && h.Close == nil:
		return "the harness has no Close"
	case n&counts != 0 && h.Writes == nil:
		return "the harness has no Writes"
	case n&history != 0 && s.checkHistory == nil:
		return "the options have no CheckHistory"
	}
	return n.missingHook(h)
}

// The hooks of servers that a case may need.
const (
	loseAnswer needs = 1 << (8 + iota)
	freeze
	skewClock
	sweep
)

// missingHook returns which hook a harness lacks, or "".
func (n needs) missingHook(h Harness) string {
	switch {
	case n&loseAnswer != 0 && h.LoseAnswer == nil:
		return "the harness has no LoseAnswer"
	case n&freeze != 0 && h.Freeze == nil:
		return "the harness has no Freeze"
	case n&skewClock != 0 && h.SkewClock == nil:
		return "the harness has no SkewClock"
	case n&sweep != 0 && h.Sweep == nil:
		return "the harness has no Sweep"
	}
	return ""
}
