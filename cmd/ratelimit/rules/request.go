package rules

// domainEntry is the entry in which a limit sees the domain of a request.
const domainEntry = "domain"

// maxKeptKey is the capacity up to which a request keeps its space for keys.
const maxKeptKey = 4 << 10

// A request has the entries of a descriptor by their numbers, and space for matching.
type request struct {
	values  []string // by number
	has     []bool   // by number
	present []int    // numbers of the entries that are there

	found  []int // limits
	except []int // exceptions of one of them
	parts  []string
	key    []byte
}

func newRequest(entries int) *request {
	return &request{values: make([]string, entries), has: make([]bool, entries)}
}

func (r *request) read(n names, domain string, d Descriptor) {
	for _, e := range d {
		r.set(n, e.Name, e.Value)
	}
	if domain != "" {
		r.set(n, domainEntry, domain)
	}
}

// set keeps the first value of a name.
func (r *request) set(n names, name, value string) {
	if i, ok := n[name]; ok && !r.has[i] {
		r.values[i], r.has[i] = value, true
		r.present = append(r.present, i)
	}
}

func (r *request) value(entry int) (string, bool) { return r.values[entry], r.has[entry] }

// clear removes what is of one descriptor, so that no value is kept.
func (r *request) clear() {
	for _, i := range r.present {
		r.values[i], r.has[i] = "", false
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
