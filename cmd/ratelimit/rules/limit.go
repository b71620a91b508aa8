// Package rules has the limits of the service, reads them from files, and finds those that apply to
// a request.
//
// A request is a [Descriptor]: entries such as tenant=acme and path=/v1/chat. [Read] reads the
// limits of a file, and [Compile] makes a [Set] of them, in which finding the limits of a request
// costs by their number and not by that of all limits.
package rules

import (
	"time"
)

// An Entry is what a request says of itself under one name, such as tenant and acme.
type Entry struct {
	Name, Value string
	// Path means that Value is the path of a request as a client has sent it, as it always is under
	// the name path. Servers may see several paths in it. A condition of a limit matches if it
	// matches any of them, and of several rates that are possible then the lowest counts. The value
	// in keys is the same for all spellings. Envoy's files see the Value as it is.
	Path bool
}

// A Descriptor has the entries of a request. Only the limits of Envoy's files look at their order,
// and at a name that occurs more than once; others see the first value of a name.
type Descriptor []Entry

// Value returns the first value of a name.
func (d Descriptor) Value(name string) (value string, ok bool) {
	for _, e := range d {
		if e.Name == name {
			return e.Value, true
		}
	}
	return "", false
}

// A Rate is how much a limit admits.
type Rate struct {
	Units     int64         // in any Window; 0 admits nothing; ignored for blocks
	Window    time.Duration // ignored for a calendar and calls in flight; the longest block
	Unlimited bool          // admits everything, and counts nothing
	// Starts is the day on which weeks, months or quarters begin: from 1, which is Monday for
	// weeks. 0 is that of the limit's Rate, or 1.
	Starts int
}

// Less reports whether r admits less than another rate of the same limit, in the long run or else
// at once. The less of two blocks is the longer one.
func (r Rate) Less(than Rate) bool {
	// Products, since a window may be 0.
	a := float64(r.Units) * float64(than.Window)
	b := float64(than.Units) * float64(r.Window)
	switch {
	case r.Unlimited != than.Unlimited:
		return than.Unlimited
	case a != b:
		return a < b
	case r.Units != than.Units:
		return r.Units < than.Units
	}
	return r.Window > than.Window
}

// A Limit is a limit of a configuration file, as it says it.
type Limit struct {
	Name   string      // whose histories these are; unique in a Set
	ByName bool        // only requests that name the limit meet it: no descriptor matches
	Domain string      // of Envoy's files: the only domain whose requests it applies to
	When   []Condition // all of them have to match
	Key    []string    // names of entries, whose values are the key; each has to be there

	Rate      Rate
	By        *Plans      // rates by the value of an entry
	Except    []Exception // rates of some requests; the first one that matches counts
	Algorithm string      // one of algorithms.OfService; empty: log

	// Offset is added to the beginnings of fixed windows, and of weeks, months and quarters.
	Offset time.Duration

	// Holds is how long units are held by default; 0: they cannot be held, and calls in flight are
	// held for a minute.
	Holds time.Duration
	// ChargesTimeouts lets what is held and times out be charged, instead of being free.
	ChargesTimeouts bool
	// Debt is the longest time until a bucket is full again, whatever was charged; 0: the longest
	// Window of its rates, but at least an hour. Other algorithms have none.
	Debt time.Duration
	// Lease is the share of the limit that may go unused, so that processes can take units ahead of
	// their use; 0: they take none; nil: that of the service.
	Lease     *float64
	Warn      float64 // share of Units from which decisions carry a warning; 0: never
	Shadow    bool    // decides and counts, and refuses nothing
	Always    bool    // records units even if they do not fit
	Quota     bool    // of Envoy's files: refuses only if all others with Quota do
	OnFailure string  // closed or open; empty: that of the service

	Label    string         // of Envoy's files: what they call it, in answers; may be empty
	Replaces []string       // of Envoy's files: names of limits that do not apply beside it
	Metadata map[string]any // of Envoy's files

	At Position
}

// A Condition is on the value of an entry, which has to be there.
type Condition struct {
	Entry string
	// Pattern is the value, or with Prefix its beginning. Prefix with an empty Pattern matches any
	// value.
	Pattern string
	Prefix  bool
	// Among, if not nil, has the values in place of Pattern: one of them has to match.
	Among *Values
}

// Plans are rates by the value of an entry. A value that is not among them has the limit's Rate.
type Plans struct {
	Entry string
	Rates map[string]Rate
	At    Position
}

// An Exception is the rate of the requests that match all its conditions.
type Exception struct {
	When []Condition
	Rate Rate
	// Until, if not zero, is when the exception ends, by the clock of the process. From then on it
	// matches nothing.
	Until time.Time
	At    Position
}
