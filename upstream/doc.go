// Package upstream keeps the requests that a fleet of processes sends to an upstream, such as the
// API of another company, within the upstream's limits.
//
//	transport, err := upstream.New(store, nil, ratelimit.PerSecond("maps", 50))
//	…
//	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
//
// Processes whose transports use one store share the limits of a key: all of them together send no
// more than one of them alone could. The requests of one transport and key wait for their turn,
// first come, first served, and are then sent through [Options.Base]; see also [Options.Claims].
//
// # Deadlines
//
// The first request of a queue fails at once if its limits do not admit it before its deadline,
// with a [LimitError] that names the limit and the time to try again. One whose deadline passes
// behind others fails then, with a LimitError that names neither. The deadline is that of the
// request's context, which [http.Client.Timeout] sets too; net/http returns an error of its own if
// that ends a wait. Without a deadline a request waits as long as the limit requires. With
// [Options.NoWait] none waits.
//
// # Margin
//
// Requests do not arrive at the upstream at the intervals at which they were sent: a new
// connection, a queue or a busy processor delays some of them. A fleet that used a limit exactly
// would exceed it there. So [Options.Margin] makes the window of each limit longer: 50 requests in
// any 1.1 s for a limit of 50 in a second. If the times from the decision to the arrival differ by
// less than the margin, no window of the upstream holds more than its limit.
//
// # Cool-down
//
// An upstream may refuse all the same, for example because others use the same account. Four kinds
// of answers begin a cool-down, in which no process of the fleet sends a request of the same key:
//
//   - Status 403, 429 or 503 with a field that
//     [github.com/truewindow/ratelimit/httplimit/headers.RetryAfter] reads.
//   - Any other answer that reports a quota with nothing left and the time until it is renewed, in
//     any form that [github.com/truewindow/ratelimit/httplimit/headers.Parse] reads: RateLimit of
//     the Internet-Draft, X-RateLimit-Remaining, the fields of GitHub, OpenAI and Anthropic, and
//     others. Quotas of calls in flight do not begin a cool-down, and those of 0 units only with
//     status 429.
//   - Status 403, 429 or 503 without such fields, and with a body in which [Options.BodyWait] finds
//     a time.
//   - Any other answer for which [Options.CoolDown] returns a length: by default a 429 that says no
//     time.
//
// A cool-down lasts [Options.MaxCoolDown] at most. If two overlap, the one that ends later holds.
// Requests wait for its end as they wait for a limit. The caller gets the answer as it is: the
// transport repeats no request.
package upstream
