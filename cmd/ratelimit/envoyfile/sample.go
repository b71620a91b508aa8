package envoyfile

import (
	"bytes"
	"maps"
	"slices"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// A Sample is a request.
type Sample struct {
	Domain     string
	Descriptor rules.Descriptor
}

// maxSamples bounds samples, since patterns below patterns would have very many.
const maxSamples = 1 << 17

// Samples returns a request for each descriptor with a limit, and for each two patterns that may
// match the same request. [Domains.Find] may find another limit for it, such as one of a pattern
// that comes before.
func (d *Domains) Samples() (samples []Sample) {
	for _, name := range d.Names() {
		d.domains[name].root.sample(name, nil, &samples)
	}
	return samples
}

// sample adds the samples of n, to which path leads.
func (n *node) sample(domain string, path rules.Descriptor, samples *[]Sample) {
	if len(*samples) == maxSamples {
		return
	}
	if n.limit != nil {
		*samples = append(*samples, Sample{domain, path})
	}
	below := func(child *node, composite []byte) {
		value, ok := bytes.CutPrefix(composite, appendComposite(nil, child.key, ""))
		if !ok { // a descriptor without a value
			value = []byte{0} // which no file has
		}
		entry := rules.Entry{Name: child.key, Value: string(value)}
		child.sample(domain, append(slices.Clip(path), entry), samples)
	}
	for _, composite := range slices.Sorted(maps.Keys(n.children)) {
		below(n.children[composite], []byte(composite))
	}
	const most = 64 // patterns, all pairs of which are tried
	for i, a := range n.patterns[:min(most, len(n.patterns))] {
		for _, b := range n.patterns[:i] {
			if both := overlap(a.parts, b.parts); both != nil {
				below(a.node, both)
				below(b.node, both)
			}
		}
	}
}

// overlap returns a text that two patterns match, or nil.
func overlap(a, b [][]byte) []byte {
	longer := func(a, b []byte, isPart func(s, part []byte) bool) ([]byte, bool) {
		if len(a) < len(b) {
			a, b = b, a
		}
		return a, isPart(a, b)
	}
	first, begin := longer(a[0], b[0], bytes.HasPrefix)
	last, end := longer(a[len(a)-1], b[len(b)-1], bytes.HasSuffix)
	if !begin || !end {
		return nil
	}
	both := slices.Clone(first)
	for _, part := range slices.Concat(a[1:len(a)-1], b[1:len(b)-1]) {
		both = append(both, part...)
	}
	return append(both, last...)
}
