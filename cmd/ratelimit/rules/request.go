package rules

import (
	"slices"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/paths"
)

// pathEntry is an entry whose value is a path; see [Entry].
const pathEntry = "path"

// domainEntry is the entry in which a limit sees the domain of a request.
const domainEntry = "domain"

// maxKeptKey is the capacity up to which a request keeps its space for keys.
const maxKeptKey = 4 << 10

// A request has the entries of a descriptor by their numbers, and space for matching.
type request struct {
	values   []string          // by number; of a path that of keys
	has      []bool            // by number
	readings []*paths.Readings // by number; nil for an entry that is only its value
	present  []int             // numbers of the entries that are there
	several  bool              // whether an entry has readings
	sets     [][]*Values       // by number: those that have the value, or one of its readings

	found  []int // limits
	except []int // exceptions of one of them
	parts  []string
	key    []byte
}

func newRequest(entries int) *request {
	return &request{values: make([]string, entries), has: make([]bool, entries),
		readings: make([]*paths.Readings, entries), sets: make([][]*Values, entries)}
}

func (r *request) read(s *Set, domain string, d Descriptor) {
	for i := range d {
		r.set(s, &d[i])
	}
	if domain != "" {
		r.set(s, &Entry{Name: domainEntry, Value: domain})
	}
}

// set keeps the first value of a name.
func (r *request) set(s *Set, e *Entry) {
	i, ok := s.names[e.Name]
	if !ok || r.has[i] {
		return
	}
	r.values[i], r.has[i] = e.Value, true
	r.present = append(r.present, i)
	m := s.members[i]
	if e.isPath() {
		if readings := paths.Read(e.Value); readings != nil {
			r.values[i], r.readings[i], r.several = readings.Key, readings, true
			for _, value := range readings.List {
				if m != nil {
					r.sets[i] = m.appendSets(r.sets[i], value)
				}
			}
			return
		}
	}
	if m != nil {
		r.sets[i] = m.appendSets(r.sets[i], e.Value)
	}
}

func (e *Entry) isPath() bool { return e.Path || e.Name == pathEntry }

// readings returns the values that e may have, or nil if it has one.
func (e *Entry) readings() *paths.Readings {
	if e.isPath() {
		return paths.Read(e.Value)
	}
	return nil
}

// Spelled reports whether servers may see several paths in a value of d: its sender may have chosen
// how many limits by path apply.
func (d Descriptor) Spelled() bool {
	return slices.ContainsFunc(d, func(e Entry) bool {
		readings := e.readings()
		return readings != nil && (readings.Open || readings.Strict > 1)
	})
}

// clear removes what is of one descriptor, so that no value is kept.
func (r *request) clear() {
	for _, i := range r.present {
		r.values[i], r.has[i], r.sets[i] = "", false, r.sets[i][:0]
	}
	if r.several {
		clear(r.readings)
		r.several = false
	}
	clear(r.parts)
	r.present = r.present[:0]
	if cap(r.key) > maxKeptKey {
		r.key = nil
	}
}

// keyOf returns the key of the values of entries, all of which are there.
func (r *request) keyOf(entries []int) string {
	r.parts = r.parts[:0]
	for _, i := range entries {
		r.parts = append(r.parts, r.values[i])
	}
	if len(r.parts) == 1 && isOrdinary(r.parts[0]) {
		return r.parts[0]
	}
	r.key = appendKey(r.key[:0], r.parts)
	return string(r.key)
}
