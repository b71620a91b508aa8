// Package upstream keeps the requests that a fleet of processes sends to an upstream, such as the
// API of another company, within the upstream's limits.
//
//	transport, err := upstream.New(store, nil, ratelimit.PerSecond("maps", 50))
//	…
//	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
//
// Processes whose transports are on one store share the limits of a key: together they send no more
// than one of them alone may. A request waits for its turn, first come, first served within a
// process, and then goes out through [Options.Base].
//
// # Deadlines
//
// A request that would wait until its deadline or longer fails at once with a [LimitError], which
// names the limit and says when to try again. The deadline is that of the request's context, which
// [http.Client.Timeout] sets too. A request without a deadline waits for as long as it takes. With
// [Options.NoWait] no request waits.
//
// # Margin
//
// Requests arrive at the upstream at other intervals than they left at: some take longer for a new
// connection, a queue or a busy processor. A fleet that uses a limit exactly would exceed it there.
// So each limit's window is longer here by [Options.Margin]: 50 requests in any 1.1 s for a limit
// of 50 in a second. If the times from the decision to the arrival differ by less than the margin,
// no window of the upstream holds more than its limit.
//
// # Cool-down
//
// An upstream may know better: others may use the same account. It can say so in two ways, and both
// begin a cool-down, in which no process of the fleet sends a request of the same key:
//
//   - Status 403, 429 or 503 with Retry-After (RFC 9110, section 10.2.3).
//   - Without that, whatever the status: a quota of which nothing remains and the time until it is
//     renewed, in any form that [github.com/truewindow/ratelimit/httplimit/headers.Parse] reads:
//     RateLimit of the Internet-Draft, X-RateLimit-Remaining, the fields of GitHub, OpenAI and
//     Anthropic, and others. Quotas of calls in flight begin none.
//
// A cool-down lasts [Options.MaxCoolDown] at most. Requests wait for its end as for a limit, and a
// later one that ends sooner does not shorten it. The caller gets the answer as it is: the
// transport repeats no request.
package upstream
