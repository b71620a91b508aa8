// Package grpclimit puts a [ratelimit.Limiter] in front of the methods of a gRPC server, or of the
// calls of a gRPC client.
//
//	choose := grpclimit.PerCall(limiter, grpclimit.PeerAddr)
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(choose)),
//		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(choose)),
//	)
//
// A [Choose] says what a call costs: claims of one or more limiters, which are decided together. A
// call is passed on when all of them are admitted, and otherwise ends with a status:
//
//   - RESOURCE_EXHAUSTED when a limit refuses. Its details are an ErrorInfo with the reason
//     [ReasonExceeded], or [ReasonBlocked] for a block ([WithBlocks]), and the names of the limits
//     that refused, a QuotaFailure with a violation for each of them, and a RetryInfo with the time
//     to wait. There is no RetryInfo where waiting does not help: for a call of more units than a
//     limit ever admits.
//   - UNAVAILABLE when only the reduced limits of a degraded store refuse
//     ([ratelimit.SourceLocal]): the caller may well be within the real limits, and
//     RESOURCE_EXHAUSTED would blame the caller for a fault of the server. An ErrorInfo has the
//     reason [ReasonReduced] and the names of these limits, and a RetryInfo the time to wait.
//   - UNAVAILABLE when the limiter leaves the call undecided: the store is unavailable and the
//     limiter's policy does not admit it (see [ratelimit.Limiter.With]). An ErrorInfo has the
//     reason [ReasonUndecided].
//   - DEADLINE_EXCEEDED or CANCELED when the call's context has ended.
//   - INVALID_ARGUMENT when the call cannot be attributed: its Choose returned an error or a claim
//     without a key. If that error is a status, its code takes the place of INVALID_ARGUMENT.
//   - INTERNAL when the claims cannot be decided at all, which is a mistake in the configuration.
//
// No status holds a key or the text of an error.
//
// Units of calls in flight ([ratelimit.NewInFlight]) are held until the call or the stream ends,
// also by a panic. A call that grpc-go retries by itself is one call.
//
// Health checks and reflection are not limited; see [WithExempt].
package grpclimit
