// Package connectlimit limits the calls of Connect servers and clients (connectrpc.com/connect/v2).
// Package [github.com/truewindow/ratelimit/connectlimit/connectv1] is for version 1.
//
//	server := connect.NewServer(
//		connectlimit.ServerInterceptor(connectlimit.PerCall(limiter, connectlimit.PeerAddr)))
//
// A [Choose] returns what a call costs: claims of one or more limiters, which are admitted together
// or not at all. A call whose claims are admitted is passed on, and so is a call without claims.
// Any other call ends with an error, which clients of all three protocols read: Connect, gRPC and
// gRPC-Web. Its details are messages of the package google.rpc:
//
//   - resource_exhausted when a limit refuses. The details are an ErrorInfo, a QuotaFailure and a
//     RetryInfo. The ErrorInfo has the reason [ReasonExceeded], or [ReasonBlocked] for a block
//     ([WithBlocks]), and the names of the limits that refuse. The QuotaFailure has a violation for
//     each of them. The RetryInfo has the time to wait; if only calls in flight refuse, that is one
//     second at most. There is no RetryInfo if the call has more units than a limit ever admits, or
//     if too many calls wait for the key ([WithWait]).
//   - unavailable when every limit that refuses is one that a degraded store has reduced
//     ([ratelimit.SourceLocal]): the caller may be within its real limits. The details are an
//     ErrorInfo with the reason [ReasonReduced] and the names of these limits, and a RetryInfo.
//   - unavailable when the store is unavailable and the policy of a limiter does not admit the call
//     (see [ratelimit.Limiter.WithPolicy]). The only detail is an ErrorInfo with the reason
//     [ReasonUndecided].
//   - deadline_exceeded or canceled when the call's context has ended.
//   - invalid_argument when the call cannot be attributed to a key: the Choose returned an error,
//     or a claim without a key. If the error is a [connect.Error], the call ends with its code.
//   - internal when the claims can never be decided, for example because their limiters are on
//     different stores. This is a mistake in the Choose or in the configuration.
//
// The answer of a Connect server to a unary call has the status of HTTP that belongs to its code,
// such as 429, and with a refusal Retry-After and the fields of
// [github.com/truewindow/ratelimit/httplimit/headers]. No caller gets a key or the text of an
// error; an outer interceptor finds the error of a call that was not decided by errors.Unwrap, to
// log it.
//
// Calls in flight ([github.com/truewindow/ratelimit/algorithm.InFlight]) are held until the call or
// the stream ends, even if it panics. Health checks and reflection are not limited; see
// [WithExempt].
package connectlimit
