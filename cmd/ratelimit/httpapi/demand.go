package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// Bounds of a request. They keep every ID that the daemon returns below maxID.
const (
	maxClaims      = 16
	maxDescriptors = 16
	maxEntries     = 32
	maxKey         = rules.MaxKey // bytes of a key
	maxID          = 48 << 10     // bytes; a body of MaxBody has room for it
)

// claimBody is a claim as requests write it: units of a key under a limit by its name.
type claimBody struct {
	limit   *string
	key     *string
	n       *int64
	entries rules.Descriptor
}

func (c *claimBody) fields() fields {
	f := c.target()
	f["n"] = integer(&c.n, "n", 0, driver.MaxUnits)
	f["entries"] = entriesField("entries", &c.entries)
	return f
}

// target returns the fields of a claim that name whose units it is about.
func (c *claimBody) target() fields {
	return fields{
		"limit": value(&c.limit, text(`"limit" must be a string.`)),
		"key":   value(&c.key, text(badKey.Detail)),
	}
}

// claimList returns the field of a list of claims.
func claimList(dst *[]claimBody, r rule) field {
	return bodyList(dst, r, maxClaims, tooManyClaims, where, (*claimBody).fields)
}

// where names the claim at index i in the details of a problem.
func where(i int) string { return fmt.Sprintf("claims[%d]", i) }

type describedBody struct {
	entries rules.Descriptor
	n       *int64
}

func (d *describedBody) fields() fields {
	return fields{
		"entries": entriesField("entries", &d.entries),
		"n":       integer(&d.n, "n", 0, driver.MaxUnits),
	}
}

// bodyList returns the field of a list of 1 to most objects, whose place names each in problems.
func bodyList[T any](
	dst *[]T, r rule, most int, tooMany *problem.Problem, place func(int) string,
	of func(*T) fields,
) field {
	read := list(r, func(dec *json.Decoder) *problem.Problem {
		if len(*dst) == most {
			return tooMany
		}
		var body T
		p := of(&body).decode(dec)
		if p != nil {
			p = invalid(place(len(*dst)) + ": " + p.Detail)
		}
		*dst = append(*dst, body)
		return p
	})
	return func(dec *json.Decoder) *problem.Problem {
		if p := read(dec); p != nil {
			return p
		}
		if len(*dst) == 0 {
			return invalid(r())
		}
		return nil
	}
}

// entriesField returns a field that is read into dst, in its order.
func entriesField(name string, dst *rules.Descriptor) field {
	rule := invalid(fmt.Sprintf("%q must be an object of strings of Unicode text without U+FFFD, "+
		"with at most %d names that differ and are not empty.", name, maxEntries))
	return func(dec *json.Decoder) *problem.Problem {
		if tok, err := dec.Token(); err != nil {
			return notJSON
		} else if tok != json.Delim('{') {
			return rule
		}
		*dst = rules.Descriptor{}
		for dec.More() {
			name, err := dec.Token()
			if err != nil {
				return notJSON
			}
			value, err := dec.Token()
			if err != nil {
				return notJSON
			}
			e := rules.Entry{Name: name.(string)}
			var ok bool
			e.Value, ok = value.(string)
			_, twice := dst.Value(e.Name)
			if !ok || twice || e.Name == "" || len(*dst) == maxEntries ||
				strings.ContainsRune(e.Name+e.Value, utf8.RuneError) {
				return rule
			}
			*dst = append(*dst, e)
		}
		if _, err := dec.Token(); err != nil {
			return notJSON
		}
		return nil
	}
}

// demandBody is what a request asks for: units of claims, of descriptors, or of a key under all
// limits of --limit, which is the entry key of limits of a file.
type demandBody struct {
	key         *string
	n           *int64
	claims      []claimBody
	descriptor  rules.Descriptor
	descriptors []describedBody
}

func (d *demandBody) addTo(f fields) {
	f["key"] = value(&d.key, text(badKey.Detail))
	f["n"] = integer(&d.n, "n", 0, driver.MaxUnits)
	f["claims"] = claimList(&d.claims, text(`"claims" must be a list of at least one claim.`))
	f["descriptor"] = entriesField("descriptor", &d.descriptor)
	f["descriptors"] = bodyList(&d.descriptors,
		text(`"descriptors" must be a list of at least one descriptor.`), maxDescriptors,
		invalid(fmt.Sprintf("There are more than %d descriptors.", maxDescriptors)),
		func(i int) string { return fmt.Sprintf("descriptors[%d]", i) }, (*describedBody).fields)
}

// A demand has the requests that are decided together.
type demand struct {
	requests []decision.Request
	place    func(int) string // names a request in problems
}

// readDemand reads what a query asks for, and its other fields into more.
func (a *API) readDemand(q *query, more fields) (demand, *problem.Problem) {
	var body demandBody
	body.addTo(more)
	if p := more.parse(q.body); p != nil {
		return demand{}, p
	}
	return a.demand(&body)
}

// demand returns the requests of a body.
func (a *API) demand(body *demandBody) (demand, *problem.Problem) {
	d := demand{place: func(int) string { return "The request" }}
	forms := 0
	for _, given := range []bool{body.key != nil, body.claims != nil, body.descriptor != nil,
		body.descriptors != nil} {
		if given {
			forms++
		}
	}
	var p *problem.Problem
	switch n := unitsOr(body.n, 1); {
	case forms > 1, body.n != nil && (body.claims != nil || body.descriptors != nil):
		return d, invalid(`A request has one of "descriptor", "descriptors", "claims" and ` +
			`"key"; "n" stands beside a descriptor or a key, or in a list.`)
	case body.claims != nil:
		d.place = where
		d.requests, p = a.claims(body.claims)
	case body.descriptors != nil:
		for i, b := range body.descriptors {
			if b.entries == nil {
				return d, invalid(fmt.Sprintf(`descriptors[%d] has no "entries".`, i))
			}
			d.requests = append(d.requests,
				decision.Request{Descriptor: b.entries, N: unitsOr(b.n, 1)})
		}
	case body.descriptor != nil:
		d.requests = []decision.Request{{Descriptor: body.descriptor, N: n}}
	default:
		d.requests, p = a.ofKey(body.key, n)
	}
	for i := range d.requests {
		r := &d.requests[i] // under a limit by its name, too many units exceed that
		if p == nil && (r.N < 0 || r.N > driver.MaxUnits && r.Limit == "") {
			at := ""
			if body.claims != nil {
				at = where(i) + ": "
			}
			p = invalid(at + integerRule("n", 0, driver.MaxUnits))
		}
	}
	return d, p
}

func unitsOr(n *int64, otherwise int64) int64 {
	if n == nil {
		return otherwise
	}
	return *n
}

// ofKey returns the requests of a key: a claim under each limit of --limit, or a descriptor.
func (a *API) ofKey(key *string, n int64) ([]decision.Request, *problem.Problem) {
	if p := checkKey(key); p != nil {
		return nil, p
	}
	if a.config() != nil {
		return []decision.Request{{
			Descriptor: rules.Descriptor{{Name: "key", Value: *key}}, N: n}}, nil
	}
	var requests []decision.Request
	for _, l := range a.decider.Set().Limits() {
		if !l.ByName {
			requests = append(requests, decision.Request{Limit: l.Name, Key: *key, N: n})
		}
	}
	return requests, nil
}

// claims returns the requests of claims.
func (a *API) claims(bodies []claimBody) ([]decision.Request, *problem.Problem) {
	requests := make([]decision.Request, len(bodies))
	for i := range bodies {
		body, at := &bodies[i], where(i)
		l, p := a.target(at, body)
		if p != nil {
			return nil, p
		}
		n := unitsOr(body.n, 1)
		if kindOf(l) == block {
			if n = unitsOr(body.n, 0); n > 0 {
				return nil, wrongKind(at +
					` is on a block, which has no units: leave out "n", or set it to 0.`)
			}
		}
		if slices.ContainsFunc(requests[:i], func(r decision.Request) bool {
			return r.Limit == l.Name && r.Key == *body.key
		}) {
			return nil, duplicateClaims
		}
		requests[i] = decision.Request{
			Limit: l.Name, Key: *body.key, Descriptor: body.entries, N: n}
	}
	return requests, nil
}

// target returns the limit that a claim names, of one of the kinds if there are any. Its key is
// valid then.
func (a *API) target(
	where string, body *claimBody, kinds ...kind,
) (*rules.Limit, *problem.Problem) {
	if body.limit == nil {
		return nil, invalid(where + ` has no "limit".`)
	}
	if p := checkKey(body.key); p != nil {
		return nil, p
	}
	l := limitOf(a.decider, *body.limit)
	switch {
	case l == nil:
		return nil, unknownLimit(where)
	case len(kinds) > 0 && !slices.Contains(kinds, kindOf(l)):
		return nil, wrongKind(fmt.Sprintf("The limit %q was set by %v; this request "+
			"needs one of %v.", l.Name, kindOf(l), kinds[0]))
	}
	return l, nil
}

// limitOf returns the limit of a name that is in force, or nil.
func limitOf(d *decision.Decider, name string) *rules.Limit {
	if set := d.Set(); set != nil {
		return set.Limit(name)
	}
	return nil
}

// kind says what the units of a limit are.
type kind uint8

const (
	rate     kind = iota // units that were used, of --limit
	inFlight             // calls in flight, of --in-flight
	block                // milliseconds for which a key is blocked, of --block
)

// String returns the flag that configures limits of the kind.
func (k kind) String() string { return [...]string{"--limit", "--in-flight", "--block"}[k] }

func kindOf(l *rules.Limit) kind {
	switch l.Algorithm {
	case algorithms.Block:
		return block
	case algorithms.InFlight:
		return inFlight
	}
	return rate
}

// problem returns what is wrong with a request of d.
func (d *demand) problem(wrong *decision.RequestError) *problem.Problem {
	at := d.place(wrong.Request)
	switch {
	case errors.Is(wrong, decision.ErrUnknownLimit):
		return unknownLimit(at)
	case errors.Is(wrong, decision.ErrMissingEntry):
		return missingEntry(at, wrong)
	case errors.Is(wrong, driver.ErrExceedsLimit):
		return exceeds(at, wrong.Limit)
	case errors.Is(wrong, decision.ErrNeedsHold):
		return wrongKind(at + ` is a call in flight, which is held until it is settled: add ` +
			`"hold_ms", such as 0.`)
	case errors.Is(wrong, decision.ErrHoldRange):
		return holdRange(wrong.Limit.Name, wrong.Holder)
	}
	return nil
}

func missingEntry(at string, wrong *decision.RequestError) *problem.Problem {
	return unprocessable(problemDocs+"missing-entry", "Missing entry",
		fmt.Sprintf(`%s needs %q in "entries": the rate of the limit %q depends on it.`,
			at, wrong.Entry, wrong.Limit.Name))
}
