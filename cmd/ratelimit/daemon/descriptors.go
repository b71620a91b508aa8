package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// Bounds of a request.
const (
	maxDescriptors = 16
	maxEntries     = 32
)

// descriptorsBody is one descriptor, or a list of descriptors with units.
type descriptorsBody struct {
	one  rules.Descriptor
	list []describedBody
}

type describedBody struct {
	entries rules.Descriptor
	n       *int64
}

func (d *descriptorsBody) given() bool { return d.one != nil || d.list != nil }

func (d *descriptorsBody) addTo(f fields) {
	const rule = `"descriptors" must be a list of at least one descriptor.`
	f["descriptor"] = entriesField("descriptor", &d.one)
	read := list(text(rule), func(dec *json.Decoder) *problem.Problem {
		if len(d.list) == maxDescriptors {
			return invalid(fmt.Sprintf("There are more than %d descriptors.", maxDescriptors))
		}
		var body describedBody
		p := fields{
			"entries": entriesField("entries", &body.entries),
			"n":       integer(&body.n, "n", 0, driver.MaxUnits),
		}.decode(dec)
		if at := fmt.Sprintf("descriptors[%d]", len(d.list)); p != nil {
			p = invalid(at + ": " + p.Detail)
		} else if body.entries == nil {
			p = invalid(at + ` has no "entries".`)
		}
		d.list = append(d.list, body)
		return p
	})
	f["descriptors"] = func(dec *json.Decoder) *problem.Problem {
		if p := read(dec); p != nil {
			return p
		}
		if len(d.list) == 0 {
			return invalid(rule)
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

// requests returns the requests of a body. A key is a descriptor with the entry key.
func (d *descriptorsBody) requests(c *claimsBody) ([]decision.Request, *problem.Problem) {
	n := int64(1)
	if c.whole.n != nil {
		n = *c.whole.n
	}
	switch {
	case c.claims != nil, d.given() && c.whole.key != nil, d.one != nil && d.list != nil,
		d.list != nil && c.whole.n != nil:
		return nil, invalid(`A request has one of "descriptor", "descriptors", "claims" and ` +
			`"key"; "n" stands beside a descriptor or a key, or in a list.`)
	case d.list != nil:
		requests := make([]decision.Request, len(d.list))
		for i, body := range d.list {
			requests[i] = decision.Request{Descriptor: body.entries, N: 1}
			if body.n != nil {
				requests[i].N = *body.n
			}
		}
		return requests, nil
	case d.one == nil:
		if p := checkKey(c.whole.key); p != nil {
			return nil, p
		}
		d.one = rules.Descriptor{{Name: "key", Value: *c.whole.key}}
	}
	return []decision.Request{{Descriptor: d.one, N: n}}, nil
}

// readDemand reads the claims or descriptors of a request, and its other fields into more. If it is
// not such a body, it answers why and returns false.
func readDemand(
	w http.ResponseWriter, r *http.Request, more fields,
) (c claimsBody, d descriptorsBody, ok bool) {
	c.addTo(more)
	d.addTo(more)
	ok = readFields(w, r, more)
	return c, d, ok
}

// describe reports whether a body is decided as descriptors: of limits of files a key is one too.
func (a *api) describe(d *descriptorsBody, c *claimsBody) bool {
	return d.given() || a.budgets.ofFile && c.claims == nil
}

func (a *api) decideDescriptors(
	w http.ResponseWriter, r *http.Request, d *descriptorsBody, c *claimsBody,
	opts decision.Options,
) {
	requests, p := d.requests(c)
	for i := range requests {
		if n := requests[i].N; p == nil && (n < 0 || n > driver.MaxUnits) {
			p = invalid(integerRule("n", 0, driver.MaxUnits))
		}
	}
	if p != nil {
		p.Write(w)
		return
	}
	refused := http.StatusTooManyRequests
	if opts.Peek {
		refused = http.StatusOK
	}
	decided, err := a.deciding().Decide(r.Context(), requests, opts)
	switch {
	case err != nil:
		a.failDecision(w, r, err, requests)
	case decided.ID != "" && !isShort(&decided):
		a.drop(r.Context(), decided.ID)
		tooManyClaims.Write(w)
	default:
		writeDecided(w, refused, &decided)
	}
}

// holdOptions returns the options of hold_ms and wait_ms.
func holdOptions(ctx context.Context, hold, wait *int64) (decision.Options, *problem.Problem) {
	opts := decision.Options{Wait: milliseconds(wait)}
	ends := ctx.Value(waitsKey{}).(*waits)
	opts.Client, opts.Stop = ends.client, ends.stop
	if hold != nil {
		d := milliseconds(hold)
		opts.Hold = &d
	}
	if p := checkWait(hold, wait); p != nil {
		return opts, p
	}
	return opts, checkHoldRange(hold)
}

// failDecision is fail for descriptors.
func (a *api) failDecision(
	w http.ResponseWriter, r *http.Request, err error, requests []decision.Request,
) {
	switch {
	case errors.Is(err, decision.ErrNeedsHold):
		wrongKind(`The request counts as a call in flight, which is held until it is settled: ` +
			`add "hold_ms", such as 0.`).Write(w)
	case errors.Is(err, ratelimit.ErrInvalid):
		// It names limits and no keys.
		unprocessable(driverDocs+"ErrInvalid", "Invalid request", err.Error()).Write(w)
	default:
		a.failUnder(w, r, err, func() []string { return a.limitsOf(requests) })
	}
}

// limitsOf returns the names of the limits that apply to requests, each once.
func (a *api) limitsOf(requests []decision.Request) (names []string) {
	set := a.decider.Set()
	if set == nil {
		return nil
	}
	for _, r := range requests {
		for _, m := range set.Match(nil, r.Domain, r.Descriptor) {
			if !slices.Contains(names, m.Limit.Name) {
				names = append(names, m.Limit.Name)
			}
		}
	}
	return names
}

// isShort reports whether the daemon would accept the id of a decision again.
func isShort(d *decision.Decision) bool {
	n := 0
	for _, part := range d.Parts {
		n += len(part.Statuses)
	}
	return n <= maxClaims && len(d.ID) <= maxID
}

// drop ends what an id holds. If it fails, the holds time out.
func (a *api) drop(ctx context.Context, id string) {
	if r, err := a.decider.Resume(id); err == nil {
		_ = r.Cancel(ctx)
	}
}

// decidedBody is the answer to descriptors: as for claims, with the limits that apply to each
// descriptor. Without an enforced limit it has no limit that binds.
type decidedBody struct {
	ID string `json:"id,omitempty"`
	*limitState
	Allowed bool         `json:"allowed"`
	Limits  []limitState `json:"limits"`
}

// writeDecided answers with 200, or with the status of a refusal.
func writeDecided(w http.ResponseWriter, refused int, d *decision.Decision) {
	body := decidedBody{ID: d.ID, Allowed: d.Allowed, Limits: []limitState{}}
	var results []ratelimit.Result // of enforced limits
	var states []limitState
	for _, part := range d.Parts {
		for i := range part.Statuses {
			s := &part.Statuses[i]
			state := newLimitState(s.Result.Limit, s.Result)
			state.Allowed, state.Shadow, state.Never, state.Warned =
				s.Allowed, s.Shadow, s.Never, s.Warned
			state.Block = s.Limit.Algorithm == algorithms.Block
			if !s.Asked {
				state.Source = "none"
			}
			if !s.Asked && !s.Rate.Unlimited {
				state.Counts = nil
			}
			body.Limits = append(body.Limits, state)
			if !s.Shadow {
				results, states = append(results, s.Result), append(states, state)
			}
		}
	}
	if len(results) > 0 {
		binding := ratelimit.Binding(results)
		body.limitState = &states[binding]
		if !d.Allowed && !states[binding].Never && refused != http.StatusOK {
			problem.SetRetryAfter(w.Header(), results[binding].RetryAfter)
		}
	}
	status := http.StatusOK
	if !d.Allowed {
		status = refused
	}
	writeJSON(w, status, body)
}
