package grpclimit

import "google.golang.org/grpc/codes"

// An Option changes a default of an interceptor or an [Adapter]. If an option other than
// [WithBlocks] is repeated, the last one applies.
type Option func(*options)

type options struct {
	domain   string
	exempt   map[string]bool // services
	blocks   map[string]bool // names of limits
	pushback bool
	jitter   float64
	wait     bool
	messages Choose
	counts   func(codes.Code) bool
}

// WithDomain sets the domain of each ErrorInfo: a name that identifies the service that refuses,
// such as its DNS name. The default, also for an empty domain, is [DefaultDomain].
func WithDomain(domain string) Option {
	return func(o *options) {
		if domain != "" {
			o.domain = domain
		}
	}
}

// WithExempt sets the services whose methods are not limited, by their full names. It replaces the
// default, which is health checks and reflection: grpc.health.v1.Health,
// grpc.reflection.v1.ServerReflection and grpc.reflection.v1alpha.ServerReflection. WithExempt()
// exempts no service.
func WithExempt(services ...string) Option {
	return func(o *options) {
		o.exempt = make(map[string]bool, len(services))
		for _, s := range services {
			o.exempt[s] = true
		}
	}
}

// WithBlocks declares the limits with the given names to be blocks, such as those of
// [github.com/truewindow/ratelimit/algorithm.Block]. A refusal by one of them has the reason
// [ReasonBlocked], and its violation has no quota. Repeated options add names.
func WithBlocks(limits ...string) Option {
	return func(o *options) {
		if o.blocks == nil {
			o.blocks = make(map[string]bool, len(limits))
		}
		for _, name := range limits {
			o.blocks[name] = true
		}
	}
}

// WithPushback makes a server also send the time to wait in the trailer grpc-retry-pushback-ms
// (gRPC proposal A6): in milliseconds, rounded up, or -1 if waiting does not help. The automatic
// retries of gRPC clients follow this trailer and do not read RetryInfo. A client waits as long as
// the trailer says, up to its deadline. The interceptors of clients panic if they get this option.
func WithPushback() Option {
	return func(o *options) { o.pushback = true }
}

// WithRetryJitter makes the RetryInfo, and the trailer of [WithPushback], longer by a random number
// of milliseconds, up to share of it. Use it if many clients are refused at one instant: they would
// all come back at one. The default, 0, is the exact wait. Interceptors panic if share is not
// between 0 and 1.
func WithRetryJitter(share float64) Option {
	return func(o *options) { o.jitter = share }
}

// WithWait makes a client wait until a call is admitted, as [ratelimit.WaitAll] does: calls with
// the same limiter and key in their first claim are admitted in the order in which they began.
// Others have no order among them.
//
// The first of a queue is refused at once if it has to wait until its deadline or longer, and those
// behind it are not. What is held under a Budget or a limit of calls in flight may be free at any
// time, so a call that waits for that alone is not refused before its deadline. If too many wait
// for a key ([ratelimit.ErrQueueFull]), the next is refused at once, by all its limits and without
// a RetryInfo.
//
// With [WithMessages], SendMsg waits too. The interceptors of servers panic if they get this
// option.
func WithWait() Option {
	return func(o *options) { o.wait = true }
}

// WithMessages limits the messages of a stream one by one, besides its opening: those that a server
// receives, or that a client sends. choose gets the message as its request. It must not return
// claims of calls in flight: such a message ends the stream with INTERNAL. The option does not
// change unary calls.
//
// A message that is refused ends the stream. On a server, RecvMsg returns the status from then on,
// and the handler should return it to the client. On a client, SendMsg returns the status, the
// message is not sent, and the stream is canceled.
func WithMessages(choose Choose) Option {
	return func(o *options) { o.messages = choose }
}

// WithCounting decides by the outcome of a call whether its units count under its Budgets
// ([github.com/truewindow/ratelimit/algorithm.Budget]). The units are held while the call runs, so
// concurrent calls cannot spend more than there is. When the call ends, they count, for all
// attempts, if counted returns true for its status code. The code of a call that panics is
// Internal. Units under other limits always count. A call without a claim on a Budget ends with
// INTERNAL, unless all its claims are of calls in flight or of no units. The option applies to
// unary calls and to the opening of streams, not to messages.
//
// counted must be safe for concurrent use. If it panics, the units count.
func WithCounting(counted func(codes.Code) bool) Option {
	return func(o *options) { o.counts = counted }
}
