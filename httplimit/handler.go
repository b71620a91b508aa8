package httplimit

import (
	"context"
	"fmt"
	"net/http"
	"unsafe"

	"github.com/truewindow/ratelimit"
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
	m := &middleware{choose: choose, known: newKnown(), refuse: refuse}
	for _, opt := range opts {
		opt(m)
	}
	if _, err := m.format.MarshalText(); err != nil {
		panic("httplimit: " + err.Error())
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

func refuse(w http.ResponseWriter, _ *http.Request, d Decision) { d.problem().Write(w) }

type middleware struct {
	choose  Choose
	limiter *ratelimit.Limiter // if choose is PerKey(limiter, key), else nil
	key     KeyFunc
	next    http.Handler
	known   *known

	format headers.Format
	expose bool
	units  map[string]headers.Unit
	blocks map[string]bool
	refuse func(http.ResponseWriter, *http.Request, Decision)
	counts func(status int) bool // or nil
}

// roomItems is the number of limits whose results take no allocation of their own.
const roomItems = 2

// limited is the only allocation that a limited request needs. It holds the request's new context,
// the copy of the request that has this context, the decision and the fields.
type limited struct {
	context.Context // of the original request
	decision        Decision
	request         http.Request
	items           [roomItems]headers.Item
	fields          [2]string
	room            [96]byte // of fields[1], if that fits
}

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
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnattributed, err)
	} else if len(claims) == 0 {
		m.next.ServeHTTP(w, r)
		return
	} else {
		err = checkClaims(claims)
	}
	if err != nil {
		m.refuse(w, r, Decision{Err: err, ended: r.Context().Err() != nil})
		return
	}
	l := &limited{Context: r.Context()}
	var room [4]*description
	descriptions, err := m.describe(room[:0], claims)
	var reservation *ratelimit.Reservation
	if err == nil {
		reservation, err = m.decide(l, claims, descriptions)
	}
	if err != nil {
		l.decision = Decision{Err: err, ended: l.Err() != nil}
	}
	m.writeFields(w.Header(), l, descriptions)
	if !l.decision.Allowed() {
		setRetryAfter(w.Header(), l.decision)
		m.refuse(w, r, l.decision)
		return
	}
	l.request = *r.WithContext(l)
	defer l.removeFiles(r)
	if reservation == nil {
		m.next.ServeHTTP(w, &l.request)
	} else {
		m.serveReserved(w, &l.request, reservation)
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

// removeFiles removes the temporary files of a form that a handler has read from the copy of r. The
// server removes only those of r.
func (l *limited) removeFiles(r *http.Request) {
	if form := l.request.MultipartForm; form != nil && r.MultipartForm == nil {
		_ = form.RemoveAll()
	}
}

// decide calls the limiters and writes their decision to l. It returns a reservation if something
// has to be settled after the handler.
func (m *middleware) decide(
	l *limited, claims []ratelimit.Claim, descriptions []*description,
) (*ratelimit.Reservation, error) {
	settles := m.counts != nil
	d := &l.decision
	d.blocks, d.Items = m.blocks, l.items[:0]
	for _, desc := range descriptions {
		d.Items = append(d.Items, desc.items...)
		settles = settles || desc.inFlight
	}
	var (
		room        [4]ratelimit.Result // keeps the results of up to four limits off the heap
		results     = room[:0]
		reservation *ratelimit.Reservation
		err         error
	)
	switch {
	case settles:
		reservation, err = ratelimit.ReserveAll(l.Context, claims...)
		if err == nil {
			results = reservation.ResultsEach()
		}
	case len(claims) == 1:
		c := &claims[0]
		results, err = c.Limiter.AllowEach(l.Context, c.Key, c.N, results)
	default:
		results, err = ratelimit.AllowAllEach(l.Context, results, claims...)
	}
	if err != nil {
		return nil, err
	}
	for i := range d.Items {
		d.Items[i].Result = results[i]
	}
	return reservation, nil
}

// writeFields writes the fields that describe the limits to the client.
func (m *middleware) writeFields(h http.Header, l *limited, descriptions []*description) {
	if m.expose {
		headers.Expose(h, m.format)
	}
	items := m.told(l.decision.Items)
	if m.format != headers.Draft11 {
		headers.Write(h, m.format, items...)
		return
	}
	if len(items) == 0 {
		return
	}
	var room [256]byte
	if len(descriptions) == 1 && !reducedAny(items) {
		l.fields[0] = descriptions[0].policy
	} else {
		l.fields[0] = string(headers.AppendPolicy(room[:0], items))
	}
	l.fields[1] = l.text(headers.AppendRateLimit(l.room[:0], items))
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

// text returns b as a string. If b is in l.room, the string shares that memory: nothing writes to
// it again, and the string keeps it alive.
func (l *limited) text(b []byte) string {
	if len(b) == 0 || &b[0] != &l.room[0] {
		return string(b)
	}
	return unsafe.String(&b[0], len(b))
}

// reducedAny reports whether a degraded store has decided an item by a share of its limit.
func reducedAny(items []headers.Item) bool {
	for i := range items {
		if items[i].Result.Source == ratelimit.SourceLocal {
			return true
		}
	}
	return false
}
