package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/httplimit/headers"
)

// Handler returns a handler that takes one unit of limiter for each request. It passes the requests
// that are admitted to next, and answers the others as the package comment describes. It is
// New(PerKey(limiter, key))(next).
//
// It panics if limiter, key or next is nil. To exempt requests, route them to next directly, or use
// [New].
func Handler(limiter *ratelimit.Limiter, key KeyFunc, next http.Handler) http.Handler {
	h := New(PerKey(limiter, key))(next).(*middleware)
	h.limiter, h.key = limiter, key
	return h
}

// New returns middleware that passes on the requests whose claims are admitted, and answers the
// others as the package comment describes. Handlers get the decision from [FromContext].
//
// New panics if choose is nil or an option is invalid. The middleware panics if its handler is nil.
func New(choose Choose, opts ...Option) func(http.Handler) http.Handler {
	if choose == nil {
		panic("httplimit: the Choose function is nil")
	}
	m := &middleware{choose: choose, refuse: refuse}
	for _, opt := range opts {
		opt(m)
	}
	if _, err := m.format.MarshalText(); err != nil {
		panic("httplimit: " + err.Error())
	}
	if !edge.ValidJitter(m.jitter) {
		panic("httplimit: the share of WithRetryJitter is not between 0 and 1")
	}
	if m.refuse == nil {
		panic("httplimit: the function of WithRefusal is nil")
	}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("httplimit: the handler is nil")
		}
		with := *m
		with.next = next
		return &with
	}
}

type middleware struct {
	choose  Choose
	limiter *ratelimit.Limiter // if choose is PerKey(limiter, key), else nil
	key     KeyFunc
	next    http.Handler

	format headers.Format
	expose bool
	units  map[string]headers.Unit
	blocks map[string]bool
	refuse func(http.ResponseWriter, *http.Request, Decision)
	counts func(status int) bool // or nil
	jitter float64
}

// limited holds the request's new context, the copy of the request that has this context, the
// decision and the fields, so that all of them take one allocation.
type limited struct {
	context.Context // of the original request
	decision        Decision
	request         http.Request
	fields          [2]string
	deciding        deciding
	call            edge.Call
}

// deciding is [context.WithoutCancel] without an allocation.
type deciding struct{ context.Context }

func (*deciding) Deadline() (deadline time.Time, ok bool) { return }
func (*deciding) Done() <-chan struct{}                   { return nil }
func (*deciding) Err() error                              { return nil }

// Value adds the decision to the values of the context.
func (l *limited) Value(key any) any {
	if key == (decisionKey{}) {
		return &l.decision
	}
	return l.Context.Value(key)
}

func (m *middleware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var one [1]ratelimit.Claim
	claims, err := m.claims(r, &one)
	if err == nil && len(claims) == 0 {
		m.next.ServeHTTP(w, r)
		return
	}
	if err != nil {
		// A client that has only closed its half of the connection ends the context too.
		ended := r.Context().Err()
		m.refuse(w, r, Decision{Err: fmt.Errorf("%w: %w", ErrUnattributed, err),
			ended: errors.Is(ended, context.DeadlineExceeded) ||
				ended != nil && errors.Is(err, ended)})
		return
	}
	l := &limited{Context: r.Context()}
	m.decide(l, claims)
	m.writeFields(w.Header(), l)
	if !l.decision.Allowed() {
		setRetryAfter(w.Header(), l.decision, m.jitter)
		m.refuse(w, r, l.decision)
		return
	}
	l.request = *r.WithContext(l)
	defer l.show(r)
	if l.call.Settles() {
		m.serveReserved(w, &l.request, &l.call)
	} else {
		m.next.ServeHTTP(w, &l.request)
	}
}

// claims calls choose, or sets one to what it would return.
func (m *middleware) claims(
	r *http.Request, one *[1]ratelimit.Claim,
) ([]ratelimit.Claim, error) {
	if m.limiter == nil {
		return m.choose(r)
	}
	key, err := m.key(r)
	one[0] = ratelimit.Claim{Limiter: m.limiter, Key: key, N: 1}
	return one[:], err
}

// show sets on r what inner handlers have set on its copy, for middleware around this one. It
// removes the temporary files of a form: if a middleware has made r, the server does not know them.
func (l *limited) show(r *http.Request) {
	in := &l.request
	if in.MultipartForm != nil && r.MultipartForm == nil {
		_ = in.MultipartForm.RemoveAll()
		r.MultipartForm = in.MultipartForm
	}
	if in.Form != nil && r.Form == nil {
		r.Form, r.PostForm = in.Form, in.PostForm
	}
	if in.Pattern == r.Pattern {
		return
	}
	r.Pattern = in.Pattern
	for _, after := range strings.Split(in.Pattern, "{")[1:] {
		name, _, _ := strings.Cut(after, "}")
		if name = strings.TrimSuffix(name, "..."); name != "$" {
			r.SetPathValue(name, in.PathValue(name))
		}
	}
}

// decide calls the limiters and writes their decision to l.
//
// A client that closes its half of the connection, and still reads, ends the request's context
// like one that disconnects. So the decision has only the deadline of that context.
func (m *middleware) decide(l *limited, claims []ratelimit.Claim) {
	l.deciding = deciding{l.Context}
	var ctx context.Context = &l.deciding
	if deadline, ok := l.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	d := &l.decision
	opts := edge.Options{Settle: m.counts != nil}
	d.Err = l.call.Decide(ctx, claims, opts)
	switch {
	case errors.Is(d.Err, edge.ErrNoKey):
		d.Err = errNoKey
		return
	case d.Err != nil:
		d.ended = ctx.Err() != nil
		return
	}
	d.Results, d.blocks = l.call.Results, m.blocks
	d.reduced = !l.call.Allowed() && l.call.Reduced(claims)
	at := 0
	for i := range claims {
		for _, a := range claims[i].Limiter.Algorithms() {
			unit := m.units[a.Limit().Name]
			if unit == "" && edge.InFlight(a) {
				unit = headers.ConcurrentRequests
			}
			d.setKind(at, kind{unit, opts.Holds(claims[i], a)})
			at++
		}
	}
}

// writeFields writes the fields that describe the limits to the client.
func (m *middleware) writeFields(h http.Header, l *limited) {
	if m.expose {
		headers.Expose(h, m.format)
	}
	var told [4]headers.Item // keeps those of up to four limits off the heap
	items := l.decision.appendItems(told[:0])
	if m.format != headers.Draft11 {
		headers.Write(h, m.format, items...)
		return
	}
	var room [256]byte
	b := headers.AppendPolicy(room[:0], items)
	policy := len(b)
	both := string(headers.AppendRateLimit(b, items))
	l.fields[0], l.fields[1] = both[:policy], both[policy:]
	for i, name := range [...]string{"Ratelimit-Policy", "Ratelimit"} {
		switch {
		case l.fields[i] == "":
		case len(h[name]) == 0:
			h[name] = l.fields[i : i+1 : i+1] // no allocation
		default: // another middleware has set it: these fields are lists
			h[name] = append(h[name], l.fields[i])
		}
	}
}
