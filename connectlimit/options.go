package connectlimit

import "connectrpc.com/connect/v2"

// An Option changes a default of an interceptor. If an option other than [WithBlocks] is repeated,
// the last one applies.
type Option func(*options)

type options struct {
	domain   string
	exempt   map[string]bool // services
	blocks   map[string]bool // names of limits
	jitter   float64
	wait     bool
	request  bool
	messages Choose
	counts   func(connect.Code) bool
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

// WithExempt sets the services whose procedures are not limited, by their full names. It replaces
// the default, which is health checks and reflection: grpc.health.v1.Health,
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

// WithRetryJitter makes the RetryInfo longer by a random number of milliseconds, up to share of it,
// and Retry-After by one of seconds. Use it if many clients are refused at one instant: they would
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
// behind it are not. If too many wait for a key ([ratelimit.ErrQueueFull]), the next is refused at
// once, by all its limits and without a RetryInfo. With [WithRequest] and [WithMessages], Send
// waits. The interceptors of servers panic if they get this option.
func WithWait() Option {
	return func(o *options) { o.wait = true }
}

// WithRequest decides a call by the content of its request: choose gets the message. A server
// decides when it has decoded the message, and a client when it sends it. The default is to decide
// before any message is read. The option is for calls with one request: unary ones, and streams of
// the server. Other streams are decided when they are opened, without a message.
func WithRequest() Option {
	return func(o *options) { o.request = true }
}

// WithMessages limits the messages of a stream one by one, besides its opening: those that a server
// receives, or that a client sends. choose gets the message. It must not return claims of calls in
// flight: such a message ends the stream with an internal error. The option does not change unary
// calls.
//
// A message that is refused ends the stream, whatever a server's handler returns. On a client, Send
// returns the error, the message is not sent, and the stream is closed.
func WithMessages(choose Choose) Option {
	return func(o *options) { o.messages = choose }
}

// WithCounting decides by the outcome of a call whether its units count under its Budgets
// ([github.com/truewindow/ratelimit/algorithm.Budget]). The units are held while the call runs, so
// concurrent calls cannot spend more than there is. When the call ends, they count if counted
// returns true for its code, which is 0 if it has succeeded and [connect.CodeInternal] if it has
// panicked. Units under other limits always count. A call without a claim on a Budget ends with an
// internal error, unless all its claims are of calls in flight or of no units. The option does not
// apply to messages.
//
// counted must be safe for concurrent use. If it panics, the units count.
func WithCounting(counted func(connect.Code) bool) Option {
	return func(o *options) { o.counts = counted }
}
