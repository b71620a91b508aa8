package rules

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/driver"
)

var limitKeys = []string{"name", "when", "key", "max", "algorithm", "holds", "by", "except", "warn",
	"mode", "charge", "on_failure"}

// unknown is the algorithm of a limit whose own is a problem. The form of its rates is not checked.
const unknown = "?"

// limit reads a limit. It adds a problem for all that is wrong.
func (f *file) limit(n *yaml.Node) *Limit {
	l := &Limit{At: f.at(n)}
	fields := f.fields(n, "a limit", limitKeys)
	if n.Kind != yaml.MappingNode {
		return l
	}
	if v := fields["name"]; v != nil {
		l.Name, _ = f.text(v, "name")
	} else {
		f.add(n, "the limit has no name")
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
	} else {
		f.add(n, "the limit has no max")
	}
	if v := fields["by"]; v != nil {
		l.By = f.by(v, l.Algorithm)
	}
	if v := fields["except"]; v != nil {
		for _, e := range f.list(v, "except") {
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
	if v := fields["warn"]; v != nil {
		l.Warn = f.percent(v, "warn")
		if l.Algorithm == algorithms.Block {
			f.add(v, "a block has no warning, since it counts nothing")
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

// when reads conditions.
func (f *file) when(n *yaml.Node) []Condition {
	var conditions []Condition
	f.each(n, "when", func(key, value *yaml.Node) {
		pattern, ok := f.scalar(value, "the value of "+plain(key.Value))
		if !ok || !f.entryName(key) {
			return
		}
		pattern, prefix := strings.CutSuffix(pattern, "*")
		if strings.Contains(pattern, "*") {
			f.add(value, "a * can only be the end of a value")
			return
		}
		conditions = append(conditions, Condition{key.Value, pattern, prefix})
	})
	return conditions
}

func (f *file) entryName(n *yaml.Node) bool {
	if n.Value == "" {
		f.add(n, "the name of an entry is empty")
	}
	return n.Value != ""
}

func (f *file) key(n *yaml.Node) []string {
	var names []string
	for _, v := range f.list(n, "key") {
		name, ok := f.text(v, "the name of an entry")
		for _, earlier := range names {
			if ok && name == earlier {
				f.add(v, "the entry %q is in the key twice", name)
			}
		}
		names = append(names, name)
	}
	return names
}

func (f *file) by(n *yaml.Node, algorithm string) *Plans {
	plans := &Plans{At: f.at(n), Rates: make(map[string]Rate)}
	f.each(n, "by", func(key, value *yaml.Node) {
		switch {
		case key.Value == "entry":
			plans.Entry, _ = f.text(value, "entry")
		case strings.Contains(key.Value, "*"):
			f.add(key, "by has exact values: write an exception for %q", key.Value)
		default:
			plans.Rates[key.Value] = f.rate(value, algorithm)
		}
	})
	if n.Kind == yaml.MappingNode && plans.Entry == "" {
		f.add(n, "by has no entry, as in {entry: plan, pro: 10000/1m}")
	}
	if n.Kind == yaml.MappingNode && len(plans.Rates) == 0 {
		f.add(n, "by has no rates, as in {entry: plan, pro: 10000/1m}")
	}
	return plans
}

var (
	exceptionKeys = []string{"when", "max"}
	includedKeys  = []string{"limit", "when", "max"}
)

// exception reads an exception of a limit with an algorithm, and returns its fields too.
func (f *file) exception(
	n *yaml.Node, algorithm string, keys []string,
) (fields map[string]*yaml.Node, e Exception) {
	fields = f.fields(n, "an exception", keys)
	e = Exception{At: f.at(n)}
	if n.Kind != yaml.MappingNode {
		return fields, e
	}
	if v := fields["when"]; v != nil {
		e.When = f.when(v)
		if v.Kind == yaml.MappingNode && len(v.Content) == 0 {
			f.add(v, "an exception without conditions is the limit's own max")
		}
	} else {
		f.add(n, "the exception has no when")
	}
	if v := fields["max"]; v != nil {
		e.Rate = f.rate(v, algorithm)
	} else {
		f.add(n, "the exception has no max")
	}
	return fields, e
}

// rate reads max of a limit with an algorithm.
func (f *file) rate(n *yaml.Node, algorithm string) Rate {
	text, ok := f.scalar(n, "max")
	switch {
	case !ok:
		return Rate{}
	case text == "unlimited":
		return Rate{Unlimited: true}
	}
	switch cmp.Or(algorithm, "log") {
	case algorithms.Block:
		return Rate{Window: f.duration(n, "max of a block")}
	case algorithms.Month, algorithms.InFlight:
		return f.units(n, algorithm)
	case unknown:
		return Rate{}
	}
	if text == "0" {
		return Rate{}
	}
	limit, err := driver.ParseLimit(text)
	switch {
	case strings.HasPrefix(text, "0/"):
		f.add(n, "write max: 0 to admit nothing")
	case strings.Contains(text, "="):
		f.add(n, "max is of the form MAX/WINDOW, such as 1000/1m, without a name")
	case err != nil:
		f.add(n, "max: %s", textOf(err))
	}
	return Rate{Units: limit.Max, Window: limit.Window}
}

// units reads max without a window.
func (f *file) units(n *yaml.Node, algorithm string) Rate {
	units, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil || units < 0 || units > driver.MaxUnits {
		f.add(n, "max of %s is an integer from 0 to %d, without a window, not %q", algorithm,
			driver.MaxUnits, n.Value)
	}
	return Rate{Units: units}
}

// duration reads a duration of the form of a window, such as 60s or 7d.
func (f *file) duration(n *yaml.Node, what string) time.Duration {
	text, ok := f.scalar(n, what)
	if !ok {
		return 0
	}
	limit, err := driver.ParseLimit("1/" + text)
	if err != nil {
		f.add(n, "%s is a duration such as 500ms, 60s, 24h or 7d, from %v to %v, not %q", what,
			driver.MinWindow, driver.MaxWindow, text)
	}
	return limit.Window
}

// percent reads a share such as 80%.
func (f *file) percent(n *yaml.Node, what string) float64 {
	text, ok := f.scalar(n, what)
	if !ok {
		return 0
	}
	number, isPercent := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if !isPercent || err != nil || !(percent > 0 && percent <= 100) {
		f.add(n, "%s is a percentage such as 80%%, above 0%% and at most 100%%, not %q", what, text)
		return 0
	}
	return percent / 100
}
