package httplimit

import (
	"maps"
	"net/http"

	"github.com/truewindow/ratelimit/httplimit/headers"
)

// An Option changes what [New] does by default.
type Option func(*middleware)

// WithFormat sets the fields that tell clients about their limits. Without it they are those of
// [headers.Draft11]; [headers.None] writes none.
func WithFormat(f headers.Format) Option {
	return func(m *middleware) { m.format = f }
}

// WithExposed lets scripts of other origins read the fields: it adds their names to
// Access-Control-Expose-Headers ([headers.Expose]).
func WithExposed() Option {
	return func(m *middleware) { m.expose = true }
}

// WithUnit says what the limit with the given name counts, if not requests, such as
// [headers.ContentBytes]. Limits of calls in flight are known without it.
func WithUnit(limit string, unit headers.Unit) Option {
	return func(m *middleware) {
		m.units = maps.Clone(m.units)
		if m.units == nil {
			m.units = map[string]headers.Unit{}
		}
		m.units[limit] = unit
	}
}

// WithBlocks says that the limits with the given names are blocks, such as those of
// [github.com/truewindow/ratelimit/algorithm.Block]. A refusal by one of them has the problem type
// #abnormal-usage-detected. The fields leave out blocks, which have no quota.
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

// WithRefusal has refuse answer every request that is not passed on. The fields and Retry-After are
// set already. [Refuse] is the default, which refuse may call for what it does not answer itself.
func WithRefusal(refuse func(http.ResponseWriter, *http.Request, Decision)) Option {
	return func(m *middleware) { m.refuse = refuse }
}

// WithCounting decides after the handler whether the units of a request count: if counts, called
// with the status of the answer, returns false, they are given back.
//
//	httplimit.WithCounting(func(status int) bool { return status == http.StatusUnauthorized })
//
// The units are taken before the handler runs, so that simultaneous requests cannot spend more than
// there is. The status is the one that the handler wrote, and without one:
//
//   - 500 if the handler panicked,
//   - 101 if it hijacked the connection,
//   - 499 if the request's context had ended,
//   - 200 otherwise.
func WithCounting(counts func(status int) bool) Option {
	return func(m *middleware) { m.counts = counts }
}
