// Package httplimit limits the requests of HTTP servers. It is middleware for net/http and for
// routers that take a func(http.Handler) http.Handler.
//
//	limit := httplimit.New(func(r *http.Request) ([]ratelimit.Claim, error) {
//		user, err := userOf(r)
//		switch {
//		case err != nil:
//			return nil, err // answered with 400
//		case user.Internal:
//			return nil, nil // not limited
//		}
//		route, err := httplimit.Route(r)
//		if err != nil {
//			return nil, err
//		}
//		cost, ok := costs[route]
//		if !ok {
//			return nil, fmt.Errorf("route %q has no cost", route)
//		}
//		return []ratelimit.Claim{{Limiter: plans[user.Plan], Key: user.ID, N: cost}}, nil
//	})
//	mux.Handle("POST /export", limit(export))
//
// A [Choose] function returns what a request costs: how many units, for which keys, under which
// limits. Plans, costs by route and exemptions are ordinary code in it. [Handler] is the short form
// for one unit of one limiter.
//
// # Answers
//
// A request that all limits admit is passed on, and so is a request without claims. Any other
// request is answered with problem details (RFC 9457) that caches must not store:
//
//   - 429 with Retry-After, in whole seconds rounded up, when a limit refuses. The type is
//     https://iana.org/assignments/http-problem-types#quota-exceeded, or #abnormal-usage-detected
//     for a block ([WithBlocks]).
//   - 503 with Retry-After and the type #temporary-reduced-capacity when every limit that refuses
//     is one that a degraded store has reduced ([ratelimit.SourceLocal]). The client may be within
//     its real limits, so 429 would blame it for a fault of the server.
//   - 503 with a Retry-After of one second and the same type when the store is unavailable and the
//     policy of a limiter does not admit the request (see [ratelimit.Limiter.WithPolicy]).
//   - 503 without a type or Retry-After when the deadline of the request's context has passed, or
//     Choose returned the error of that context.
//   - 422 when the request costs more than one of its limits admits in a whole window
//     ([ratelimit.ErrExceedsLimit]): waiting does not help.
//   - 400 when the request cannot be attributed to a key: Choose returned an error, or a claim
//     without a key. If the error is a [StatusError], the answer has its status instead.
//   - 500 when the claims can never be decided, for example because their limiters are on different
//     stores. This is a mistake in Choose or in the configuration.
//
// The member violated-policies has the names of the limits that refuse. It and the types are from
// the Internet-Draft draft-ietf-httpapi-ratelimit-headers-11. No answer contains a key or the text
// of an error. [WithRefusal] replaces these answers; [Refuse] writes them. [WithRetryJitter] makes
// Retry-After longer at random.
//
// A client that disconnects does not end the decision, because the server cannot tell it from one
// that has only closed its half of the connection and waits for the answer. The timeout of the
// store does, and the deadline of the request's context if no units are to be held until the
// request ends.
//
// # Fields
//
// If the limits have decided a request, its answer has the fields RateLimit-Policy and RateLimit of
// the same draft, or those of another format ([WithFormat]); see package headers. They say what is
// true when the client reads them: those of an admitted request leave out limits whose units are
// held until it ends, which are calls in flight and, with [WithCounting], Budgets. Those of a
// refusal have all limits. Calls in flight have no time, since it is not known when they end. If
// only calls in flight refuse a request, Retry-After is one second.
//
// # Calls in flight and units that depend on the outcome
//
// Calls in flight ([github.com/truewindow/ratelimit/algorithm.InFlight]) are released when the
// handler returns or panics. With [WithCounting], the status of the answer decides whether units
// under Budgets count. Both happen even if the client has disconnected. If the store is unavailable
// then, both are tried again for about a minute, and what stays held is free when its hold times
// out. The observers of the limiters get the errors.
package httplimit
