// Package envoyfile reads the configuration files of envoyproxy/ratelimit as limits of package
// rules. A request matches the same limit as there. What differs:
//
//   - Files are checked for more, and all that is wrong with them is reported, with positions.
//   - A rate_limit without requests_per_unit is an error.
//   - Windows roll: week, month and year are 7, 30 and 365 days; see [Options].CalendarMonths.
//   - The histories of two descriptors are never mixed up, whatever underscores they have.
//   - detailed_metric and value_to_metric change nothing: no metric has values of requests.
package envoyfile

import (
	"maps"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// Overridden is the name of the first entry by which [Domains.Find] finds the limit for requests
// that bring their own rate. See [Domains.Override].
const Overridden = "\x00override"

// Domains are the limits of a set of files. They are immutable.
type Domains struct {
	domains map[string]*domain
	limits  []*rules.Limit
	ignored rules.Problems
}

type domain struct {
	root     node
	override *rules.Limit
	at       rules.Position
}

// Limits returns all limits, in the order of the files. Besides those of the files there is one for
// each domain, which admits everything, for requests that bring their own rate.
func (d *Domains) Limits() []*rules.Limit { return slices.Clone(d.limits) }

// Names returns the names of the domains, sorted.
func (d *Domains) Names() []string { return slices.Sorted(maps.Keys(d.domains)) }

// Has reports whether a file has a domain.
func (d *Domains) Has(domain string) bool { return d.domains[domain] != nil }

// Empty returns the names of the domains without a limit, sorted.
func (d *Domains) Empty() []string {
	has := make(map[string]bool)
	for _, l := range d.limits {
		if l != d.domains[l.Domain].override {
			has[l.Domain] = true
		}
	}
	return slices.DeleteFunc(d.Names(), func(name string) bool { return has[name] })
}

// At returns where a domain is.
func (d *Domains) At(domain string) rules.Position { return d.domains[domain].at }

// Ignored returns the settings of the files that change nothing here, sorted by position. They are
// no errors, and worth a line in the log.
func (d *Domains) Ignored() rules.Problems { return slices.Clone(d.ignored) }

// Find returns the limit of a descriptor, and the key of its history. Each entry in turn leads to a
// descriptor of the file one level deeper: the one with its key and value, else the first in the
// file whose pattern matches, else the one with its key alone. The limit is that of the descriptor
// to which the last entry leads.
func (d *Domains) Find(
	domain string, descriptor rules.Descriptor,
) (limit *rules.Limit, key string, found bool) {
	in := d.domains[domain]
	if in == nil || len(descriptor) == 0 {
		return nil, "", false
	}
	if descriptor[0].Name == Overridden {
		return in.override, overrideKey(descriptor[1:]), true
	}
	var array [128]byte
	var values, names [8]string
	composite, h := array[:0], identity{values[:0], names[:0]}
	n := &in.root
	for i, e := range descriptor {
		composite = appendComposite(composite[:0], e.Name, e.Value)
		var byPattern bool
		if n, byPattern = n.next(composite, e.Name); n == nil {
			return nil, "", false
		}
		if byPattern && n.shared != "" {
			e.Value = strings.TrimPrefix(n.shared, e.Name+"_")
		}
		h.add(i, e, n.key)
	}
	if n.limit == nil {
		return nil, "", false
	}
	return n.limit, h.key(), true
}

// Override returns a descriptor for a request that brings its own rate, for which Find finds a
// limit in any domain of the files: descriptor itself if it has one, else one with an entry
// [Overridden] before its own.
func (d *Domains) Override(domain string, descriptor rules.Descriptor) rules.Descriptor {
	if _, _, found := d.Find(domain, descriptor); found || !d.Has(domain) {
		return descriptor
	}
	return slices.Insert(slices.Clone(descriptor), 0, rules.Entry{Name: Overridden})
}

func overrideKey(descriptor rules.Descriptor) string {
	parts := make([]string, 0, 2*len(descriptor))
	for _, e := range descriptor {
		parts = append(parts, e.Value, e.Name)
	}
	return rules.Key(parts...)
}
