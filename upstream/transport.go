package upstream

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/edge"
)

// Defaults of [Options].
const (
	DefaultMargin      = 100 * time.Millisecond
	DefaultMaxCoolDown = 10 * time.Minute
	DefaultCoolDown    = 10 * time.Second
)

// Options are the options of a [Transport]. The zero value is ready for use.
type Options struct {
	// Base sends the requests. Nil is http.DefaultTransport.
	Base http.RoundTripper
	// Cost returns the key under which a request counts, and its units. A request of 0 units is not
	// limited; negative units or an empty key are an error that wraps ratelimit.ErrInvalid. A
	// request for which Cost returns an error is not sent, and the caller gets the error. Cost must
	// be safe for concurrent use and must not change the request. If Cost is nil, a request is
	// one unit under the host of its URL, with the port unless it is the default of the scheme.
	Cost func(*http.Request) (key string, units int64, err error)
	// Claims returns what a request needs besides its Cost, such as a unit of a narrower limit that
	// holds for some requests only: claims that are decided together with the Cost, all or none, as
	// by [ratelimit.AllowAll]. Their limiters must be on the transport's store; make them once,
	// with [NewLimiter] so that they have the margin. Calls in flight are an error, since nothing
	// would release them. A request for which Claims returns an error is not sent, and the caller
	// gets the error. Claims is not called for a request of 0 units. It must be safe for concurrent
	// use and must not change the request. Nil means no further claims.
	//
	// Requests with claims wait in the queue of the first claim's limiter and key, and other
	// requests in that of their key. On Redis Cluster the keys must be in one hash slot.
	Claims func(*http.Request) ([]ratelimit.Claim, error)
	// Margin is how much longer the window of each limit is than at the upstream, in whole
	// microseconds. 0 means DefaultMargin; a negative Margin means no margin.
	Margin time.Duration
	// BodyWait returns the time to wait that is only in the body of an answer, or false if it finds
	// none. It is called after status 403, 429 or 503 if the fields of the answer say no time, with
	// the first 64 KiB of the body, or with what has arrived when a second is over or the request's
	// context ends; the caller of RoundTrip waits so long at most, and gets the body whole. It is
	// not called for a body with a Content-Encoding. It must be safe for concurrent use and must
	// neither change nor keep the bytes. Nil means that no body is read; see [RetryDelay].
	BodyWait func(status int, body []byte) (wait time.Duration, ok bool)
	// CoolDown returns how long no request of the same key is sent after an answer that says no
	// time to wait; 0 or less means no cool-down. It must be safe for concurrent use and must not
	// read the body. Nil means DefaultCoolDown after status 429 and none after others.
	CoolDown func(*http.Response) time.Duration
	// MaxCoolDown is the longest cool-down, whatever is required, from 1ms to
	// driver.MaxWindow. 0 means DefaultMaxCoolDown.
	MaxCoolDown time.Duration
	// NoWait makes a request fail at once if it may not be sent now.
	NoWait bool
	// Policy says what happens while the store is unavailable. Under FailWait requests wait for the
	// store, unless NoWait is set.
	Policy ratelimit.Policy
	// Observe, if not nil, gets every decision. It also gets an OpForce for each cool-down that
	// begins, with the length in milliseconds as N. The windows of the limits include the margin.
	// The last limit is the cool-down; its name is the name of the first limit with ".cooldown"
	// appended. See [ratelimit.Limiter.WithObserver].
	Observe func(context.Context, ratelimit.Observation)
}

// A Transport is an [http.RoundTripper] that keeps to the limits of an upstream. Create one with
// [New]. It is safe for concurrent use.
type Transport struct {
	options Options
	limiter *ratelimit.Limiter // the limits with the margin, and last the cool-down
	cooling *ratelimit.Limiter // the cool-down alone
}

var _ http.RoundTripper = (*Transport)(nil)

// New returns a transport that keeps to limits, at least one. All of them count the units of
// [Options.Cost] and have their state in store. Nil opts means the zero Options. New does no I/O.
//
// The limits are those that the upstream states. Transports share a limit, also across processes,
// if the store, the name of the limit and the key are the same. They share cool-downs if the name
// of their first limit is the same. That name has at most 55 bytes.
//
// An error wraps [ratelimit.ErrInvalid], also for a limit that is out of range with the margin.
func New(store ratelimit.Store, opts *Options, limits ...ratelimit.Limit) (*Transport, error) {
	t := new(Transport)
	if opts != nil {
		t.options = *opts
	}
	if err := t.options.setDefaults(); err != nil {
		return nil, err
	}
	algorithms, err := t.options.widen(limits)
	if err != nil {
		return nil, err
	}
	// The longest time is the same for all transports, because a block ends no later than the
	// longest time of the transport that reads it.
	block := algorithm.Blocking(limits[0].Name+".cooldown", driver.MaxWindow)
	if t.limiter, err = t.options.limiter(store, append(algorithms, block)...); err != nil {
		return nil, err
	}
	cooling, err := ratelimit.New(store, block)
	if err != nil {
		return nil, err
	}
	t.cooling = cooling.WithObserver(t.options.Observe)
	return t, nil
}

// NewLimiter returns a limiter for the claims of [Options.Claims]. It has the limits as the
// upstream states them, with the Margin, the Policy and the Observe of opts. Errors are those of
// [New].
func NewLimiter(
	store ratelimit.Store, opts *Options, limits ...ratelimit.Limit,
) (*ratelimit.Limiter, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	algorithms, err := o.widen(limits)
	if err != nil {
		return nil, err
	}
	return o.limiter(store, algorithms...)
}

// widen returns logs of limits whose windows are longer by the margin.
func (o *Options) widen(limits []ratelimit.Limit) (algorithms []ratelimit.Algorithm, err error) {
	if len(limits) == 0 {
		return nil, fmt.Errorf("%w options: no limit", ratelimit.ErrInvalid)
	}
	for _, limit := range limits {
		if err := limit.Validate(); err != nil {
			return nil, err
		}
		limit.Window += max(0, o.Margin)
		algorithms = append(algorithms, algorithm.SlidingLog(limit))
	}
	return algorithms, nil
}

func (o *Options) limiter(
	store ratelimit.Store, algorithms ...ratelimit.Algorithm,
) (*ratelimit.Limiter, error) {
	l, err := ratelimit.New(store, algorithms...)
	if err != nil {
		return nil, err
	}
	return l.WithPolicy(o.Policy).WithObserver(o.Observe), nil
}

// setDefaults replaces zeros by their defaults, and checks the options.
func (o *Options) setDefaults() error {
	if o.Base == nil {
		o.Base = http.DefaultTransport
	}
	if o.Cost == nil {
		o.Cost = perHost
	}
	if o.CoolDown == nil {
		o.CoolDown = afterRefusal
	}
	if o.Margin == 0 {
		o.Margin = DefaultMargin
	}
	if o.MaxCoolDown == 0 {
		o.MaxCoolDown = DefaultMaxCoolDown
	}
	if o.Margin > driver.MaxWindow {
		return fmt.Errorf("%w options: Margin %v is more than %v",
			ratelimit.ErrInvalid, o.Margin, driver.MaxWindow)
	}
	if o.MaxCoolDown < time.Millisecond || o.MaxCoolDown > driver.MaxWindow {
		return fmt.Errorf("%w options: MaxCoolDown %v is not between 1ms and %v",
			ratelimit.ErrInvalid, o.MaxCoolDown, driver.MaxWindow)
	}
	return nil
}

// perHost returns the same key for all spellings of a host and port.
func perHost(r *http.Request) (string, int64, error) {
	host := strings.TrimSuffix(strings.ToLower(r.URL.Hostname()), ".")
	switch port := r.URL.Port(); port {
	case "", defaultPorts[r.URL.Scheme]:
		return host, 1, nil
	default:
		return net.JoinHostPort(host, port), 1, nil
	}
}

var defaultPorts = map[string]string{"http": "80", "https": "443"}

// RoundTrip sends a request when its limits admit it, and returns the answer as it is.
//
// If the request was not sent, the error is one of these:
//   - A [LimitError]: the request would have to wait longer than it may, or its context ended while
//     it waited.
//   - An error that wraps [ratelimit.ErrUnavailable]: the store is unavailable, or the context
//     ended while the store was called.
//   - An error that wraps the context's error: the context had ended before the call.
//   - Another error of [ratelimit.Limiter.WaitN], such as [ratelimit.ErrExceedsLimit] for a request
//     that costs more than a limit ever admits, or [ratelimit.ErrQueueFull].
//   - An error that wraps the one of [Options.Cost] or [Options.Claims], or says that the request
//     has no URL.
//
// Other errors are those of [Options.Base]. The cost of a request is spent even if sending it
// fails, since the upstream may have counted it.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key, units, err := t.admit(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as every RoundTripper must
		}
		return nil, err
	}
	res, err := t.options.Base.RoundTrip(r)
	if err == nil && units != 0 {
		t.coolDown(r.Context(), key, res)
	}
	return res, err
}

// CloseIdleConnections closes the idle connections of Base, if it has such a method; see
// [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.options.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// admit waits until r may be sent, or returns why it may not be sent.
func (t *Transport) admit(r *http.Request) (key string, units int64, err error) {
	if r.URL == nil {
		return "", 0, errNoURL
	}
	if err := r.Context().Err(); err != nil { // a store would return it as ErrUnavailable
		return "", 0, fmt.Errorf("upstream: %w", err)
	}
	key, units, err = t.options.Cost(r)
	switch {
	case err != nil:
		return "", 0, fmt.Errorf("upstream: no cost for the request: %w", err)
	case units == 0:
		return key, 0, nil
	}
	var claims []ratelimit.Claim
	if t.options.Claims != nil {
		if claims, err = t.options.Claims(r); err != nil {
			return "", 0, fmt.Errorf("upstream: no claims for the request: %w", err)
		}
	}
	claims = append(slices.Clip(claims), // it is the caller's
		ratelimit.Claim{Limiter: t.limiter, Key: key, N: units})
	var call edge.Call
	err = call.Decide(r.Context(), claims, edge.Options{Wait: !t.options.NoWait, Unsettled: true})
	if err == nil && call.Allowed() {
		return key, units, nil
	}
	return "", 0, failure(r.Context(), call.Results, err)
}
