// Package grpclimit limits the calls of gRPC servers and clients. It has interceptors for unary
// calls and for streams.
//
//	choose := grpclimit.PerCall(limiter, grpclimit.PeerAddr)
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(choose)),
//		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(choose)),
//	)
//
// A [Choose] returns what a call costs: claims of one or more limiters, which are admitted together
// or not at all. A call whose claims are admitted is passed on, and so is a call without claims.
// Any other call ends with a status, whose details are messages of the package google.rpc:
//
//   - RESOURCE_EXHAUSTED when a limit refuses. The details are an ErrorInfo, a QuotaFailure and a
//     RetryInfo. The ErrorInfo has the reason [ReasonExceeded], or [ReasonBlocked] for a block
//     ([WithBlocks]), and the names of the limits that refuse. The QuotaFailure has a violation for
//     each of them. The RetryInfo has the time to wait; if only calls in flight refuse, that is one
//     second at most. There is no RetryInfo if the call has more units than a limit ever
//     admits, or if too many calls wait for the key ([WithWait]).
//   - UNAVAILABLE when every limit that refuses is one that a degraded store has reduced
//     ([ratelimit.SourceLocal]). The caller may be within its real limits, so RESOURCE_EXHAUSTED
//     would blame it for a fault of the server. The details are an ErrorInfo with the reason
//     [ReasonReduced] and the names of these limits, and a RetryInfo.
//   - UNAVAILABLE when the store is unavailable and the policy of a limiter does not admit the call
//     (see [ratelimit.Limiter.WithPolicy]). The only detail is an ErrorInfo with the reason
//     [ReasonUndecided].
//   - DEADLINE_EXCEEDED or CANCELED when the call's context has ended.
//   - INVALID_ARGUMENT when the call cannot be attributed to a key: the Choose returned an error,
//     or a claim without a key. If the error is a gRPC status, the call ends with the code of that
//     status instead.
//   - INTERNAL when the claims can never be decided, for example because their limiters are on
//     different stores. This is a mistake in the Choose or in the configuration.
//
// No status contains a key or the text of an error; an outer interceptor finds the error of a call
// that was not decided by errors.Unwrap, to log it. A call that is admitted sends nothing about its
// limits, since what is held until it ends would not be true when the client reads it.
//
// Calls in flight ([github.com/truewindow/ratelimit/algorithm.InFlight]) are held until the call or
// the stream ends, even if it panics. The units of other limiters are taken for each attempt of a
// call, on both sides, also when grpc-go retries a call by itself.
//
// Health checks and reflection are not limited; see [WithExempt].
package grpclimit
