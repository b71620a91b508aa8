package replay

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

const (
	worstKeys   = 10
	shownUnread = 5
	shownText   = 60 // bytes of a line that was rejected
)

// A Report is the outcome of a replay. It can also be encoded as JSON.
type Report struct {
	Input     Input     `json:"input"`
	Proposals []Outcome `json:"proposals"`
	OverTime  OverTime  `json:"over_time"`

	timeline timeline
}

// Input is what was read.
type Input struct {
	Format   Format        `json:"format"`
	KeyField string        `json:"key_field"`
	Lines    int64         `json:"lines"`
	Requests int64         `json:"requests"` // lines that were parsed
	Units    int64         `json:"units"`
	Keys     int           `json:"keys"`
	First    time.Time     `json:"first,omitzero"`
	Last     time.Time     `json:"last,omitzero"`
	Late     int64         `json:"late"`       // lines earlier than one before them
	MostLate time.Duration `json:"late_by_ns"` // the largest lateness of a line
	Unread   []Unread      `json:"unread"`
	Examples []UnreadLine  `json:"unread_examples"`
	Warnings []string      `json:"warnings,omitempty"` // of keys that may be wrong
}

// Unread is the number of lines that were rejected for a reason.
type Unread struct {
	Reason string `json:"reason"`
	Lines  int64  `json:"lines"`
}

// UnreadLine is one of the first lines that were rejected.
type UnreadLine struct {
	Log    int    `json:"log,omitempty"` // from 1; 0 if there is only one
	Line   int64  `json:"line"`
	Reason string `json:"reason"`
	Text   string `json:"text"` // the beginning of the line
}

// An Outcome is what a proposal would have done.
type Outcome struct {
	Limit        driver.Limit `json:"limit"`
	Algorithm    string       `json:"algorithm"`
	Refused      int64        `json:"refused"`
	RefusedUnits int64        `json:"refused_units"`
	TooLarge     int64        `json:"too_large"` // requests for more units than Max
	KeysRefused  int          `json:"keys_refused"`
	First        *time.Time   `json:"first_refusal"` // nil without refusals
	Last         *time.Time   `json:"last_refusal"`
	Longest      *Stretch     `json:"longest_stretch"`
	WorstKeys    []WorstKey   `json:"worst_keys"`
	Exactness    *Exactness   `json:"exactness"` // nil for the exact log
}

// A Stretch is the longest time for which a key was only refused.
type Stretch struct {
	Key     string    `json:"key"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Refused int64     `json:"refused"`
}

// WorstKey is a key that was refused often.
type WorstKey struct {
	Key      string `json:"key"`
	Refused  int64  `json:"refused"`
	Requests int64  `json:"requests"`
}

// Exactness reports how an algorithm differs from the exact limit, which admits at most Max units
// in any Window and refuses nothing else.
type Exactness struct {
	MostInWindow  int64 `json:"most_in_window"` // units of a key
	OverLimit     int64 `json:"over_limit"`     // requests admitted above Max
	WrongRefusals int64 `json:"wrong_refusals"` // requests refused though there was room
}

// OverTime has requests in intervals of the same length.
type OverTime struct {
	From     time.Time     `json:"from"`
	Interval time.Duration `json:"interval_ns"`
	Requests []int64       `json:"requests"`
	Refused  [][]int64     `json:"refused"` // of each proposal
}

func instant(at int64) time.Time { return time.UnixMicro(at).UTC() }

// addUnread counts a line of the current block of a log.
func (in *Input) addUnread(l *mergedLog, u *unread) {
	reason := u.reason.Error()
	i := slices.IndexFunc(in.Unread, func(r Unread) bool { return r.Reason == reason })
	if i < 0 {
		i = len(in.Unread)
		in.Unread = append(in.Unread, Unread{Reason: reason})
	}
	in.Unread[i].Lines++
	if len(in.Examples) < shownUnread {
		text := u.text[:min(len(u.text), shownText)]
		in.Examples = append(in.Examples, UnreadLine{
			l.number, l.lines + u.line, reason, string(text)})
	}
}

// report returns the report of what was decided so far.
func (e *engine) report(o *Options) *Report {
	e.input.Format, e.input.KeyField = o.Format, o.KeyField
	e.input.Keys = len(e.keys)
	if e.input.Requests > 0 {
		e.input.Last = instant(e.now)
		e.input.Warnings = e.warnings(o)
	}
	r := &Report{Input: e.input, timeline: e.timeline}
	for _, t := range e.trials {
		r.Proposals = append(r.Proposals, e.outcome(t))
	}
	r.OverTime = e.timeline.overTime()
	return r
}

// warnings returns what suggests that the keys are not those of the clients.
func (e *engine) warnings(o *Options) (warnings []string) {
	const few = 10 // requests that say nothing
	warn := func(format string, args ...any) {
		warnings = append(warnings, fmt.Sprintf(format, args...))
	}
	most, names := e.keys[0], int64(0)
	isClient := o.KeyField == fieldNames[fieldClient]
	for _, k := range e.keys {
		if k.requests > most.requests {
			most = k
		}
		if isClient && o.Format != JSONLines && isHostName([]byte(k.name)) {
			names += k.requests
		}
	}
	switch requests := e.input.Requests; {
	case requests < few:
	case most.requests*100 >= requests*99:
		warn("%s of requests have the key %s: is that a proxy, or not the client's field?",
			percent(most.requests, requests), shown(most.name))
	case int64(len(e.keys))*10 >= requests*9:
		warn("nearly every request has a key of its own: is field %s the right one?",
			shown(o.KeyField))
	}
	if names > 0 {
		warn("%s of clients with a name, which a limit by address counts by its addresses",
			counted(names, "request"))
	}
	return warnings
}

func (e *engine) outcome(t *trial) Outcome {
	o := Outcome{Limit: t.proposal.Algorithm.Limit(), Algorithm: t.proposal.Name,
		Refused: t.refused, RefusedUnits: t.refusedUnits, TooLarge: t.tooLarge}
	if a := t.audit; a != nil {
		o.Exactness = &Exactness{a.most, a.over, a.wrong}
	}
	if t.refused == 0 {
		return o
	}
	first, last := instant(t.first), instant(t.last)
	o.First, o.Last = &first, &last
	o.Longest = &Stretch{e.keys[t.longest.key].name,
		instant(t.longest.from), instant(t.longest.to), t.longest.refused}
	for id := range t.tallies {
		refused := t.tallies[id].refused
		if refused == 0 {
			continue
		}
		o.KeysRefused++
		o.addWorst(WorstKey{e.keys[id].name, refused, e.keys[id].requests})
	}
	return o
}

// addWorst keeps the keys with the most refusals. Among equal ones it keeps those that arrived
// first.
func (o *Outcome) addWorst(k WorstKey) {
	i, _ := slices.BinarySearchFunc(o.WorstKeys, k, func(a, b WorstKey) int {
		if a.Refused == b.Refused {
			return -1
		}
		return cmp.Compare(b.Refused, a.Refused)
	})
	if i < worstKeys {
		o.WorstKeys = slices.Insert(o.WorstKeys, i, k)
		o.WorstKeys = o.WorstKeys[:min(len(o.WorstKeys), worstKeys)]
	}
}

// overTime returns the intervals of the SVG picture.
func (l *timeline) overTime() OverTime {
	c := l.atMost(svgIntervals)
	return OverTime{instant(c.from), time.Duration(widths[c.width]) * time.Microsecond,
		c.series[0], c.series[1:]}
}
