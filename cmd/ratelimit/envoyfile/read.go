package envoyfile

import (
	"cmp"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/yamlfile"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// A File is a configuration file that was read.
type File struct {
	Name string // in positions
	Text []byte
}

// Options are what the files do not say. The zero Options are those of envoyproxy/ratelimit.
type Options struct {
	// Merge lets several files have the same domain, whose descriptors then belong to one tree.
	Merge bool
	// Algorithm and Warn are those of all limits; see [rules.Limit].
	Algorithm string
	Warn      float64
	// CalendarMonths makes the unit month one of the calendar in UTC, instead of 30 days.
	CalendarMonths bool
}

// Read reads files, each of which has one domain. An error is of type [rules.Problems].
func Read(files []File, opts Options) (*Domains, error) {
	left := maxNodes
	b := &builder{
		opts: opts, domains: &Domains{domains: make(map[string]*domain)},
		labels: make(map[label][]string),
	}
	for _, f := range files {
		d := &document{yamlfile.File{Name: f.Name, Problems: &b.problems, Format: &format,
			Left: &left}, &b.domains.ignored}
		if len(f.Text) > maxFile {
			d.AddAt(1, 1, "the file is larger than %d MiB", maxFile>>20)
		} else if n := d.Parse(f.Text); n != nil {
			b.addFile(d, n)
		}
	}
	if len(b.problems) > 0 {
		return nil, sorted(b.problems)
	}
	b.resolveReplaces()
	b.domains.ignored = sorted(b.domains.ignored)
	return b.domains, nil
}

// sorted sorts problems by position, and drops repetitions, which aliases cause.
func sorted(p rules.Problems) rules.Problems {
	slices.SortStableFunc(p, func(a, b rules.Problem) int {
		return cmp.Or(cmp.Compare(a.At.File, b.At.File), cmp.Compare(a.At.Line, b.At.Line),
			cmp.Compare(a.At.Column, b.At.Column))
	})
	return slices.Compact(p)
}

// A builder makes Domains of files.
type builder struct {
	opts     Options
	domains  *Domains
	problems rules.Problems
	labels   map[label][]string // names of the limits with a label
	replaces []replacement
}

// A label is the name that a file gives to limits of a domain. Several may have the same.
type label struct{ domain, name string }

// A replacement is a limit with the labels of those that it replaces.
type replacement struct {
	limit  *rules.Limit
	labels []string
}

// resolveReplaces sets the names of the limits that each limit replaces, which may be in other
// files. A label that no limit has is no error: the limit may come with another file.
func (b *builder) resolveReplaces() {
	for _, r := range b.replaces {
		for _, name := range r.labels {
			r.limit.Replaces = append(r.limit.Replaces, b.labels[label{r.limit.Domain, name}]...)
		}
		slices.Sort(r.limit.Replaces)
		r.limit.Replaces = slices.Compact(r.limit.Replaces)
	}
}

func (b *builder) addFile(d *document, n *yaml.Node) {
	if d.Other(n, "the file", "domain", "descriptors", "<<") {
		return
	}
	m, ok := d.fields(n, "a file", "domain", "descriptors")
	if !ok {
		return
	}
	name := d.required(m, "domain", n, "the file")
	if name == "" {
		return
	}
	in := b.domains.domains[name]
	switch {
	case in == nil:
		in = &domain{override: overrideLimit(name, d.At(m["domain"])), at: d.At(m["domain"])}
		b.domains.domains[name] = in
		b.domains.limits = append(b.domains.limits, in.override)
	case !b.opts.Merge:
		d.Add(m["domain"], "the domain %q is in %v already: put all its descriptors in one "+
			"place, or set MERGE_DOMAIN_CONFIG=true", yamlfile.Clip(name), in.at)
		return
	}
	t := &tree{builder: b, document: d, domain: name}
	t.addChildren(&in.root, m, []string{name})
}

// overrideLimit is the limit of requests that bring their own rate. No descriptor of a file has its
// name, since none has an empty key.
func overrideLimit(domain string, at rules.Position) *rules.Limit {
	return &rules.Limit{
		Name: limitName([]string{domain, ""}), Domain: domain, Rate: rules.Rate{Unlimited: true},
		At: at,
	}
}
