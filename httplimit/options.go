package httplimit

import (
	"maps"
	"net/http"

	"github.com/truewindow/ratelimit/httplimit/headers"
)

// An Option changes a default of [New].
type Option func(*middleware)

// WithFormat sets the format of the fields that describe the limits to clients. The default is
// [headers.Draft11]. [headers.None] writes no fields.
func WithFormat(f headers.Format) Option {
	return func(m *middleware) { m.format = f }
}

// WithExposed lets browser scripts of other origins (CORS) read the fields: it adds their names to
// Access-Control-Expose-Headers, as [headers.Expose] does.
func WithExposed() Option {
	return func(m *middleware) { m.expose = true }
}

// WithUnit sets what the limit with the given name counts, such as [headers.ContentBytes]. The
// default is requests or, for calls in flight, [headers.ConcurrentRequests]. It changes only what
// clients are told, not what is counted.
func WithUnit(limit string, unit headers.Unit) Option {
	return func(m *middleware) {
		m.units = maps.Clone(m.units)
		if m.units == nil {
			m.units = map[string]headers.Unit{}
		}
		m.units[limit] = unit
	}
}

// WithBlocks declares the limits with the given names to be blocks, such as those of
// [github.com/truewindow/ratelimit/algorithm.Block]. A refusal by one of them has the problem type
// #abnormal-usage-detected. The fields leave out blocks, because blocks have no quota. Repeated
// options add names.
func WithBlocks(limits ...string) Option {
	return func(m *middleware) {
		m.blocks = maps.Clone(m.blocks)
		if m.blocks == nil {
			m.blocks = map[string]bool{}
		}
		for _, name := range limits {
			m.blocks[name] = true
		}
	}
}

// WithRetryJitter makes Retry-After longer by a random number of seconds, from 0 to share of it
// rounded up: with a share of 0.1 a wait of 60 s is told as 60 to 66, and one of 1 s as 1 or 2. Use
// it if many clients are refused at one instant, such as by a shared limit or in an outage: they
// would all come back in one second. The fields of package headers stay exact, as does
// [Decision.RetryAfter]. The default, 0, tells all clients the exact wait. [New] panics if share is
// not between 0 and 1.
func WithRetryJitter(share float64) Option {
	return func(m *middleware) { m.jitter = share }
}

// WithRefusal sets the function that answers every request that is not passed on. When it is
// called, the fields and Retry-After are already set. The default is [Refuse], which refuse may
// call for cases that it does not answer itself. refuse must be safe for concurrent use. [New]
// panics if it is nil.
func WithRefusal(refuse func(http.ResponseWriter, *http.Request, Decision)) Option {
	return func(m *middleware) { m.refuse = refuse }
}

// WithCounting decides after the handler whether the units of a request count under its Budgets
// ([github.com/truewindow/ratelimit/algorithm.Budget]): it calls counts with the status of the
// answer. Units under other limits always count. Here only failed logins count:
//
//	httplimit.WithCounting(func(status int) bool { return status == http.StatusUnauthorized })
//
// The units are held while the handler runs, so concurrent requests cannot spend more than there
// is. A request without a claim on a Budget is answered with 500, unless all its claims are of
// calls in flight or of no units. The status is the one that the handler wrote. If it wrote none,
// the status is:
//
//   - 500 if the handler panicked,
//   - 101 if it hijacked the connection,
//   - 499 if the request's context had ended,
//   - 200 otherwise.
//
// counts must be safe for concurrent use. If it panics, the units count.
func WithCounting(counts func(status int) bool) Option {
	return func(m *middleware) { m.counts = counts }
}
