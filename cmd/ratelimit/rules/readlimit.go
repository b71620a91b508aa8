package rules

import (
	"cmp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
)

var limitKeys = []string{"name", "when", "key", "max", "algorithm", "holds", "on_timeout", "debt",
	"starts", "offset", "by", "except", "lease", "warn", "mode", "charge", "on_failure"}

// maxEntries bounds the conditions of one when, and the entries of one key.
const maxEntries = 32

// unknown is the algorithm of a limit whose own is a problem. The form of its rates is not checked.
const unknown = "?"

// limit reads a limit. It adds a problem for all that is wrong.
func (f *file) limit(n *yaml.Node) *Limit {
	l := &Limit{At: f.At(n)}
	before := len(*f.Problems)
	fields, _ := f.Fields(n, "a limit", limitKeys...)
	known := len(*f.Problems) == before // else a key that is missing may be misspelt
	if n.Kind != yaml.MappingNode {
		return l
	}
	if v := fields["name"]; v != nil {
		l.Name, _ = f.text(v, "name")
	} else if known {
		f.Add(n, "the limit has no name")
	}
	if v := fields["algorithm"]; v != nil {
		l.Algorithm = cmp.Or(f.choice(v, "algorithm", algorithms.OfService()...), unknown)
	}
	if v := fields["when"]; v != nil {
		l.When = f.when(v)
	}
	if v := fields["key"]; v != nil {
		l.Key = f.key(v)
	}
	if v := fields["max"]; v != nil {
		l.Rate = f.rate(v, l.Algorithm)
	} else if known {
		f.Add(n, "the limit has no max")
	}
	f.calendar(l, fields)
	if v := fields["by"]; v != nil {
		l.By = f.by(v, l.Algorithm)
	}
	if v := fields["except"]; v != nil {
		for _, e := range f.List(v, "except") {
			_, exception := f.exception(e, l.Algorithm, exceptionKeys)
			l.Except = append(l.Except, exception)
		}
	}
	f.behaviour(l, fields)
	return l
}

// behaviour reads what a limit does apart from its rates.
func (f *file) behaviour(l *Limit, fields map[string]*yaml.Node) {
	if v := fields["holds"]; v != nil {
		l.Holds = f.duration(v, "holds")
	}
	if v := fields["on_timeout"]; v != nil {
		l.ChargesTimeouts = f.choice(v, "on_timeout", "free", "charge") == "charge"
		if l.Holds == 0 || l.Algorithm == algorithms.InFlight {
			f.Add(v, "on_timeout is for limits with holds of units")
		}
	}
	if v := fields["debt"]; v != nil {
		l.Debt = f.duration(v, "debt")
		if l.Algorithm != algorithms.Bucket && l.Algorithm != unknown {
			f.Add(v, "debt is for algorithm: bucket")
		}
	}
	if v := fields["lease"]; v != nil {
		f.lease(l, v)
	}
	if v := fields["warn"]; v != nil {
		l.Warn = f.percent(v, "warn")
		if l.Algorithm == algorithms.Block {
			f.Add(v, "a block has no warning, since it counts nothing")
		}
	}
	if v := fields["mode"]; v != nil {
		l.Shadow = f.choice(v, "mode", "shadow", "enforce") == "shadow"
	}
	if v := fields["charge"]; v != nil {
		l.Always = f.choice(v, "charge", "always", "admitted") == "always"
	}
	if v := fields["on_failure"]; v != nil {
		l.OnFailure = f.choice(v, "on_failure of a limit", "closed", "open")
	}
}

// lease reads how much of a limit may go unused.
func (f *file) lease(l *Limit, n *yaml.Node) {
	text, ok := f.scalar(n, "lease")
	if !ok {
		return
	}
	share, err := ParseLease(text)
	if err != nil {
		f.Add(n, "lease is %v", err)
	}
	l.Lease = &share
	switch l.Algorithm {
	case "counter", algorithms.InFlight, algorithms.Block:
		f.Add(n, "lease is not for algorithm: %s", l.Algorithm)
	}
	if algorithms.IsFixed(l.Algorithm) && l.Holds > 0 {
		f.Add(n, "lease is not for algorithm: %s with holds", l.Algorithm)
	}
}

// when reads conditions.
func (f *file) when(n *yaml.Node) []Condition {
	var conditions []Condition
	if len(n.Content) > 2*maxEntries {
		f.Add(n, "when has more than %d conditions", maxEntries)
		return nil
	}
	f.Each(n, "when", func(key, value *yaml.Node) {
		if c, ok := f.condition(key, value); ok && f.entryName(key) {
			conditions = append(conditions, c)
		}
	})
	return conditions
}

func (f *file) entryName(n *yaml.Node) bool {
	if n.Value == "" {
		f.Add(n, "the name of an entry is empty")
	}
	return n.Value != ""
}

func (f *file) key(n *yaml.Node) []string {
	var names []string
	if len(n.Content) > maxEntries {
		f.Add(n, "the key has more than %d entries", maxEntries)
		return nil
	}
	for _, v := range f.List(n, "key") {
		name, ok := f.text(v, "the name of an entry")
		for _, earlier := range names {
			if ok && name == earlier {
				f.Add(v, "the entry %q is in the key twice", name)
			}
		}
		names = append(names, name)
	}
	return names
}

func (f *file) by(n *yaml.Node, algorithm string) *Plans {
	plans := &Plans{At: f.At(n), Rates: make(map[string]Rate)}
	var values []*yaml.Node
	f.Each(n, "by", func(key, value *yaml.Node) {
		switch {
		case key.Value == "entry":
			plans.Entry, _ = f.text(value, "entry")
		case strings.Contains(key.Value, "*"):
			f.Add(key, "by has exact values: write an exception for %q", key.Value)
		default:
			plans.Rates[key.Value] = f.plan(value, algorithm)
			values = append(values, key)
		}
	})
	for _, v := range values {
		f.checkPlan(v, plans.Entry)
	}
	if n.Kind == yaml.MappingNode && plans.Entry == "" {
		f.Add(n, "by has no entry, as in {entry: plan, pro: 10000/1m}")
	}
	if n.Kind == yaml.MappingNode && len(plans.Rates) == 0 {
		f.Add(n, "by has no rates, as in {entry: plan, pro: 10000/1m}")
	}
	return plans
}

var (
	exceptionKeys = []string{"when", "max", "starts", "until"}
	includedKeys  = []string{"limit", "when", "max", "starts", "until"}
)

// exception reads an exception of a limit with an algorithm, and returns its fields too.
func (f *file) exception(
	n *yaml.Node, algorithm string, keys []string,
) (fields map[string]*yaml.Node, e Exception) {
	before := len(*f.Problems)
	fields, _ = f.Fields(n, "an exception", keys...)
	known := len(*f.Problems) == before
	e = Exception{At: f.At(n)}
	if n.Kind != yaml.MappingNode {
		return fields, e
	}
	if v := fields["when"]; v != nil {
		e.When = f.when(v)
		if v.Kind == yaml.MappingNode && len(v.Content) == 0 {
			f.Add(v, "an exception without conditions is the limit's own max")
		}
	} else if known {
		f.Add(n, "the exception has no when")
	}
	if v := fields["max"]; v != nil {
		e.Rate = f.rate(v, algorithm)
		e.Rate.Starts = f.starts(fields["starts"], algorithm)
	} else if known {
		f.Add(n, "the exception has no max")
	}
	if v := fields["until"]; v != nil {
		e.Until = f.until(v)
	}
	return fields, e
}
