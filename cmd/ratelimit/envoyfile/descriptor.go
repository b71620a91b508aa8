package envoyfile

import (
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/yamlfile"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

const day = 24 * time.Hour

var units = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day,
	"week": 7 * day, "month": 30 * day, "year": 365 * day,
}

// A tree adds the descriptors of a file to a domain.
type tree struct {
	*builder
	*document
	domain string
}

// addChildren adds the descriptors of a domain or a descriptor, m, to its node.
func (t *tree) addChildren(parent *node, m mapping, path []string) {
	if len(path) > maxDepth {
		t.Add(m["descriptors"], "descriptors are nested more than %d deep", maxDepth)
		return
	}
	for _, n := range t.list(m, "descriptors") {
		t.addDescriptor(parent, n, path)
	}
}

func (t *tree) addDescriptor(parent *node, n *yaml.Node, path []string) {
	m, ok := t.fields(n, "a descriptor", "key", "value", "rate_limit", "descriptors",
		"shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold",
		"metadata")
	if !ok {
		return
	}
	t.ignore(m)
	l := &rules.Limit{
		Domain: t.domain, Algorithm: t.opts.Algorithm, Warn: t.opts.Warn,
		Shadow: t.flag(m, "shadow_mode"), Quota: t.flag(m, "quota_mode"),
		Metadata: t.metadata(m["metadata"]),
	}
	composite := t.required(m, "key", n, "the descriptor")
	if composite == "" {
		return
	}
	child := &node{key: composite}
	if value := t.text(m, "value"); value != "" {
		composite += "_" + value
	}
	if t.flag(m, "share_threshold") {
		if !strings.Contains(composite, "*") {
			t.Add(m["share_threshold"], "share_threshold is for a key or value with an asterisk, "+
				"not for %q", yamlfile.Clip(composite))
		}
		child.shared = composite
	}
	path = append(slices.Clip(path), composite)
	if !parent.add(composite, child) {
		t.Add(n, "another descriptor beside this one has the key and value %q too; key and "+
			"value are joined by an underscore", yamlfile.Clip(composite))
		return
	}
	if n := m["rate_limit"]; n != nil {
		l.Name, l.At = limitName(path), t.At(n)
		t.setRateLimit(l, n)
		child.limit = l
	}
	t.addChildren(child, m, path)
}

// ignore notes settings that change nothing.
func (t *tree) ignore(m mapping) {
	for _, name := range []string{"detailed_metric", "value_to_metric"} {
		if t.flag(m, name) {
			*t.ignored = append(*t.ignored, rules.Problem{
				At:   t.At(m[name]),
				Text: name + " changes nothing: no metric has values of requests",
			})
		}
	}
}

// setRateLimit sets what rate_limit says, and adds the limit.
func (t *tree) setRateLimit(l *rules.Limit, n *yaml.Node) {
	m, ok := t.fields(n, "rate_limit", "unit", "requests_per_unit", "unlimited", "name", "replaces")
	if !ok {
		return
	}
	l.Label, l.Rate = t.text(m, "name"), t.rate(n, m)
	if t.opts.CalendarMonths && l.Rate.Window == units["month"] {
		l.Algorithm = "month"
	}
	if l.Label != "" {
		in := label{t.domain, l.Label}
		t.labels[in] = append(t.labels[in], l.Name)
	}
	if labels := t.replaced(m, l.Label); len(labels) > 0 {
		t.replaces = append(t.replaces, replacement{l, labels})
	}
	t.domains.limits = append(t.domains.limits, l)
}

func (t *tree) rate(n *yaml.Node, m mapping) rules.Rate {
	unit := strings.ToLower(t.text(m, "unit"))
	requests := t.requests(m)
	if t.flag(m, "unlimited") {
		if m["unit"] != nil {
			t.Add(m["unit"], "unit has no meaning beside unlimited: true")
		}
		return rules.Rate{Unlimited: true}
	}
	window, ok := units[unit]
	switch {
	case m["unit"] == nil:
		t.Add(n, "rate_limit has no unit: second, minute, hour, day, week, month or year")
	case !ok && m["unit"].Kind == yaml.ScalarNode:
		t.Add(m["unit"], "%q is not a unit; they are second, minute, hour, day, week, month "+
			"and year", yamlfile.Clip(m["unit"].Value))
	}
	if m["requests_per_unit"] == nil {
		t.Add(n, "rate_limit has no requests_per_unit; 0 refuses every request, and "+
			"unlimited: true admits all")
	}
	return rules.Rate{Units: requests, Window: window}
}

func (t *tree) requests(m mapping) int64 {
	n := m["requests_per_unit"]
	if n == nil {
		return 0
	}
	var requests uint32
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Decode(&requests) != nil {
		t.Add(n, "requests_per_unit is not a whole number from 0 to 4294967295")
	}
	return int64(requests)
}

// replaced returns the labels of the limits that a limit replaces.
func (t *tree) replaced(m mapping, own string) []string {
	var labels []string
	for _, n := range t.list(m, "replaces") {
		element, ok := t.fields(n, "an element of replaces", "name")
		if !ok {
			continue
		}
		switch name := t.required(element, "name", n, "the element of replaces"); name {
		case "":
		case own:
			t.Add(n, "the limit replaces its own name, %q", yamlfile.Clip(name))
		default:
			labels = append(labels, name)
		}
	}
	return labels
}
