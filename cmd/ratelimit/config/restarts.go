package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

// Restarts returns a warning for each limit whose count begins at zero if c replaces old, because
// what is recorded under old is of another history: of another name, algorithm or key. A limit that
// counted nothing, or is new while no other has left, has none.
func (c *Config) Restarts(old *Config) rules.Problems {
	r := restarts{old: old, new: c, before: old.counted(), after: c.counted(), had: old.names(),
		warned: make(map[string]bool)}
	has := c.names()
	for _, l := range old.Set.Limits() {
		if r.before[l.Name] != nil && !has[l.Name] {
			r.gone = append(r.gone, l.Name)
		}
	}
	if c.Domains != nil && old.Domains != nil {
		r.moves()
	}
	for _, l := range c.Set.Limits() {
		if why := r.why(l); why != "" && !r.warned[l.Name] {
			r.warn(l, fmt.Sprintf("%q counts from zero: %s", l.Name, why))
		}
	}
	return r.warnings
}

type restarts struct {
	old, new      *Config
	before, after map[string][]*rules.Variant
	had           map[string]bool // the limits of old
	gone          []string        // limits that old has and new has not
	warned        map[string]bool
	warnings      rules.Problems
}

// counted returns the rates that count, by the name of their limit.
func (c *Config) counted() map[string][]*rules.Variant {
	counted := make(map[string][]*rules.Variant)
	for _, v := range c.Set.Variants() {
		if v.Algorithm != nil {
			counted[v.Limit.Name] = append(counted[v.Limit.Name], v)
		}
	}
	return counted
}

// names returns the names of all limits.
func (c *Config) names() map[string]bool {
	names := make(map[string]bool)
	for _, l := range c.Set.Limits() {
		names[l.Name] = true
	}
	return names
}

func (r *restarts) warn(l *rules.Limit, text string) {
	r.warned[l.Name] = true
	r.warnings = append(r.warnings, rules.Problem{At: l.At, Text: text})
}

// why says why a limit counts from zero, or nothing if it does not.
func (r *restarts) why(l *rules.Limit) string {
	after, before := r.after[l.Name], r.before[l.Name]
	switch {
	case after == nil:
		return ""
	case before == nil && (len(r.gone) == 0 || r.had[l.Name]):
		return ""
	case before == nil:
		return "it is new, and others have left: if it is one of them, its name was " +
			list(r.gone)
	}
	was, of := before[0].Limit, func(l *rules.Limit) string { return cmp.Or(l.Algorithm, "log") }
	encoding := before[0].Algorithm.Name() != after[0].Algorithm.Name()
	switch {
	case encoding && of(was) != of(l):
		return fmt.Sprintf("its algorithm is %s, not %s", of(l), of(was))
	case encoding && l.Holds > 0:
		return "it has holds, and had none"
	case encoding:
		return "it has no holds, and had some"
	case !slices.Equal(was.Key, l.Key):
		return fmt.Sprintf("its key is [%s], not [%s]", strings.Join(l.Key, ", "),
			strings.Join(was.Key, ", "))
	case turns(before, after):
		return "its windows end sooner, so that the one that is counted may be over at once"
	}
	return ""
}

// moves warns of limits of envoyproxy/ratelimit that count requests which another limit, or another
// key of the same, has counted.
func (r *restarts) moves() {
	for _, d := range slices.Concat(r.new.Domains.Samples(), r.old.Domains.Samples()) {
		was, keyBefore, found := r.old.Domains.Find(d.Domain, d.Descriptor)
		if !found || r.before[was.Name] == nil {
			continue
		}
		is, keyAfter, found := r.new.Domains.Find(d.Domain, d.Descriptor)
		if !found || r.after[is.Name] == nil || r.warned[is.Name] {
			continue
		}
		switch {
		case was.Name != is.Name:
			r.warn(is, fmt.Sprintf("%q counts requests from zero that %q has counted", is.Name,
				was.Name))
		case keyBefore != keyAfter:
			r.warn(is, fmt.Sprintf("%q counts from zero: key and value of a descriptor are parted "+
				"at another place", is.Name))
		}
	}
}

// turns reports whether what was counted a moment ago under a rate of before may count no more
// under the rate of after that replaces it, as in a fixed window that becomes shorter. A rate that
// only one of them has may replace any.
func turns(before, after []*rules.Variant) bool {
	window := func(a, b *rules.Variant) int {
		return cmp.Compare(a.Algorithm.Limit().Window, b.Algorithm.Limit().Window)
	}
	longest, shortest := slices.MaxFunc(before, window), slices.MinFunc(after, window)
	was := make(map[string]*rules.Variant, len(before))
	for _, v := range before {
		was[v.Why] = v
	}
	for _, v := range after {
		if forgets(cmp.Or(was[v.Why], longest).Algorithm, v.Algorithm) {
			return true
		}
		delete(was, v.Why)
	}
	for _, v := range was {
		if forgets(v.Algorithm, shortest.Algorithm) {
			return true
		}
	}
	return false
}

// forgets reports whether a unit that was counted at the end of a window is none under another
// algorithm with the same encoding.
func forgets(was, is driver.Algorithm) bool {
	if h, ok := was.(driver.Holder); ok && h.InFlight() {
		return false
	}
	if _, ok := was.(algorithm.Block); ok {
		return false
	}
	now := time.Date(2024, 10, 4, 0, 0, 0, 0, time.UTC).UnixMicro()
	_, _, res := was.Step(nil, now, driver.Demand{Algorithm: was, Op: driver.OpForce, N: 1})
	now += res.ResetAfter.Microseconds() - 1
	state, _, _ := was.Step(nil, now, driver.Demand{Algorithm: was, Op: driver.OpForce, N: 1})
	_, _, res = is.Step(state, now, driver.Demand{Algorithm: is, Op: driver.OpPeek})
	return res.Remaining == is.Limit().Max
}

// StoreRestarts returns a warning if the store of c seems to be another one than that of old, and
// one if the secret of keys does.
func (c *Config) StoreRestarts(old *Config) (warnings rules.Problems) {
	if c.File == nil || old.File == nil {
		return nil
	}
	warn := func(at rules.Position, text string) {
		at = cmp.Or(at, rules.Position{File: c.Follow[0]})
		warnings = append(warnings, rules.Problem{At: at, Text: text})
	}
	if place(c.File.Store.Value) != place(old.File.Store.Value) {
		warn(c.File.Store.At, "store is another one, or has another prefix, tag or table: unless "+
			"the counts are there too, all limits count from zero")
	}
	if c.File.KeySecretFile.Value != old.File.KeySecretFile.Value {
		warn(c.File.KeySecretFile.At, "key_secret_file is another one: unless the secret is the "+
			"same, all limits count from zero")
	}
	return warnings
}

// place returns what says where a store keeps counts.
func place(store string) string {
	u, err := backend.ParseURL(cmp.Or(store, "memory"))
	if err != nil {
		return ""
	}
	parts := append(slices.Clone(u.Hosts), u.Path)
	for _, name := range []string{"prefix", "tag", "table"} {
		value, _ := u.Param(name)
		parts = append(parts, value)
	}
	return strings.Join(parts, " ")
}

// list returns names as one text, and no more than some of them.
func list(names []string) string {
	const most = 10
	text := strings.Join(names[:min(most, len(names))], ", ")
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}
