package grpclimit

import "google.golang.org/grpc/codes"

// An Option changes what an interceptor or an [Adapter] does.
type Option func(*options)

type options struct {
	domain   string
	exempt   map[string]bool // services
	blocks   map[string]bool // names of limits
	pushback bool
	wait     bool
	messages Choose
	counts   func(codes.Code) bool
}

// WithDomain sets the domain of each ErrorInfo: a name that is unique to what refuses, such as the
// DNS name of the service. Without it, or if it is empty, the domain is [DefaultDomain].
func WithDomain(domain string) Option {
	return func(o *options) {
		if domain != "" {
			o.domain = domain
		}
	}
}

// WithExempt sets the services whose methods are not limited, by their full names. Without it they
// are those of health checks and reflection: grpc.health.v1.Health,
// grpc.reflection.v1.ServerReflection and grpc.reflection.v1alpha.ServerReflection. Without an
// argument no service is exempt.
func WithExempt(services ...string) Option {
	return func(o *options) {
		o.exempt = make(map[string]bool, len(services))
		for _, s := range services {
			o.exempt[s] = true
		}
	}
}

// WithBlocks says that the limits with the given names are blocks, such as those of
// [github.com/truewindow/ratelimit/algorithm.Block]. A refusal by one of them has the reason
// [ReasonBlocked], and its violation has no quota.
func WithBlocks(limits ...string) Option {
	return func(o *options) {
		o.blocks = make(map[string]bool, len(limits))
		for _, name := range limits {
			o.blocks[name] = true
		}
	}
}

// WithPushback makes a server send the time to wait in the trailer grpc-retry-pushback-ms too, in
// milliseconds rounded up, and -1 where waiting does not help. The retries that a gRPC client makes
// by itself follow the trailer; they do not read RetryInfo. A client waits as long as the trailer
// says, up to its deadline.
func WithPushback() Option {
	return func(o *options) { o.pushback = true }
}

// WithWait makes a client wait until a call is admitted instead of failing it at once. A call of
// one limiter waits its turn, as [ratelimit.Limiter.WaitN] and [ratelimit.Limiter.Acquire] do; a
// call of several, or one with [WithCounting], asks again when the limits that refused it may admit
// it, in no order. A call that would not be admitted before the deadline of its context is refused
// at once; one that waits for another call in flight is not, since that may end at any time.
func WithWait() Option {
	return func(o *options) { o.wait = true }
}

// WithMessages limits the messages of a stream, one by one, besides its opening: those that a
// server receives, or that a client sends. The request that choose gets is the message. Claims of
// calls in flight are a mistake here.
//
// The message that is refused ends the stream. On a server RecvMsg returns the status, then and
// from then on, and the handler returns it to the client. On a client SendMsg returns it, the
// message is not sent, and the stream is canceled.
func WithMessages(choose Choose) Option {
	return func(o *options) { o.messages = choose }
}

// WithCounting makes calls count by their outcome: the units of a call are taken when it begins,
// and given back when it ends with a status code for which counted returns false. A call that
// panics ends with Internal. It applies to unary calls and the opening of streams, not to their
// messages.
func WithCounting(counted func(codes.Code) bool) Option {
	return func(o *options) { o.counts = counted }
}
