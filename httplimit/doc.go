// Package httplimit limits the requests of HTTP servers, as middleware for net/http and for the
// routers that take a func(http.Handler) http.Handler.
//
//	limit := httplimit.New(func(r *http.Request) ([]ratelimit.Claim, error) {
//		user, err := userOf(r)
//		switch {
//		case err != nil:
//			return nil, err // 400: it is not known whose request this is
//		case user.Internal:
//			return nil, nil // not limited
//		case r.Pattern == "POST /export":
//			return []ratelimit.Claim{{Limiter: plans[user.Plan], Key: user.ID, N: 20}}, nil
//		}
//		return []ratelimit.Claim{{Limiter: plans[user.Plan], Key: user.ID, N: 1}}, nil
//	})
//	mux.Handle("POST /export", limit(export))
//
// A [Choose] function says what a request costs: which units of which keys under which limits.
// Plans, costs by route and exemptions are ordinary code in it. [Handler] is the short form for one
// limiter and one key.
//
// # Answers
//
// A request is passed on when all limits admit it. Any other is answered with problem details (RFC
// 9457) that no cache may store:
//
//   - 429 with Retry-After, in whole seconds rounded up, when a limit refuses. The type is
//     https://iana.org/assignments/http-problem-types#quota-exceeded, or #abnormal-usage-detected
//     there for a block ([WithBlocks]). violated-policies has the names of the limits that refused.
//   - 503 with Retry-After and the type #temporary-reduced-capacity when only the reduced limits of
//     a store that is degraded refuse ([ratelimit.SourceLocal]): the client may well be within its
//     real limits, and 429 would blame it for a fault of the server. Limits that are not reduced
//     still answer 429.
//   - 503 with the same type when the store is unavailable and the policy of a limiter does not
//     admit the request (see [ratelimit.Limiter.With]).
//   - 503 without a type when the request's context has ended.
//   - 422 when the request costs more than one of its limits admits in a whole window
//     ([ratelimit.ErrExceedsLimit]): repeating it does not help.
//   - 400 when the request cannot be attributed: Choose returned an error, or a claim without a
//     key.
//   - 500 when the limiters can decide no such request at all, which is a mistake in their
//     configuration.
//
// No answer holds a key or the text of an error. [WithRefusal] replaces these answers and [Refuse]
// writes them.
//
// # Fields
//
// Every answer that a limit decides, admitted or refused, has the fields RateLimit-Policy and
// RateLimit of draft-11 of the Internet-Draft, or those of another format ([WithFormat]); see
// package headers. It is not known when calls in flight end: their fields have what remains but no
// time, and a refusal by them alone says that the client may try again in a second.
//
// # Calls in flight and units that depend on the outcome
//
// Claims of a limiter that [ratelimit.NewInFlight] made are released when the handler returns or
// panics. [WithCounting] decides after the handler, by the status that it answered with, whether
// the units count or are given back. Both happen even if the client has left. Errors of these
// settlements go to the observers of the limiters; units that could not be settled count until they
// leave the window.
package httplimit
