package upstream

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// Defaults of [Options].
const (
	DefaultMargin      = 100 * time.Millisecond
	DefaultMaxCoolDown = 10 * time.Minute
)

// Options of a transport. The zero value is ready for use.
type Options struct {
	// Base sends the requests. Nil is http.DefaultTransport.
	Base http.RoundTripper
	// Cost returns whose limits a request counts under, and its units. A request of no units is not
	// limited. An error fails the request, and the caller gets it. Many goroutines call Cost at
	// once; it must not change the request. Nil is one unit under the host of the URL, with its
	// port if that is not the default of http or https.
	Cost func(*http.Request) (key string, units int64, err error)
	// Margin is how much longer the window of each limit is here than at the upstream, in whole
	// microseconds. 0 is DefaultMargin; a negative one is none.
	Margin time.Duration
	// MaxCoolDown bounds what the upstream can ask for, from 1ms to ratelimit.MaxWindow. 0 is
	// DefaultMaxCoolDown.
	MaxCoolDown time.Duration
	// NoWait fails a request at once if it may not be sent now.
	NoWait bool
	// Policy says what happens while the store is unavailable. Under FailWait requests wait for the
	// store, if they wait at all.
	Policy ratelimit.Policy
	// Observe, if not nil, gets every decision, and an OpForce for each cool-down that begins, with
	// its length in ms. The windows of the limits have the margin. The last limit is the cool-down;
	// its name is that of the first limit and ".cooldown". See [ratelimit.Limiter.WithObserver].
	Observe func(context.Context, ratelimit.Observation)
}

// A Transport is an [http.RoundTripper] that keeps to the limits of an upstream. Create one with
// [New]. It is safe for simultaneous use.
type Transport struct {
	options Options
	limiter *ratelimit.Limiter // the limits with the margin, and last the cool-down
	cooling *ratelimit.Limiter // the cool-down alone
}

var _ http.RoundTripper = (*Transport)(nil)

// New returns a transport that keeps to limits, which all count the units of
// [Options.Cost] and have their state in store. It does no I/O.
//
// The limits are those that the upstream states. Transports share a limit, also with other
// processes, if the store, its name and the key are the same. They share cool-downs if the name of
// the first limit is the same, which has at most 55 bytes.
//
// An error wraps [ratelimit.ErrInvalidOptions] or, for a limit that is out of range with the
// margin, [ratelimit.ErrInvalidLimit]; see [ratelimit.New].
func New(store ratelimit.Store, opts *Options, limits ...ratelimit.Limit) (*Transport, error) {
	t := new(Transport)
	if opts != nil {
		t.options = *opts
	}
	if err := t.options.setDefaults(); err != nil {
		return nil, err
	}
	if len(limits) == 0 {
		return nil, fmt.Errorf("%w: no limit", ratelimit.ErrInvalidOptions)
	}
	var algorithms []ratelimit.Algorithm
	for _, limit := range limits {
		if err := limit.Validate(); err != nil {
			return nil, err
		}
		limit.Window += max(0, t.options.Margin)
		algorithms = append(algorithms, algorithm.SlidingLog(limit))
	}
	// The longest time is that of all transports, since a block ends no later than it allows.
	block := algorithm.Blocking(limits[0].Name+".cooldown", ratelimit.MaxWindow)
	limiter, err := ratelimit.New(store, append(algorithms, block)...)
	if err != nil {
		return nil, err
	}
	cooling, err := ratelimit.New(store, block)
	if err != nil {
		return nil, err
	}
	t.limiter = limiter.With(t.options.Policy).WithObserver(t.options.Observe)
	t.cooling = cooling.WithObserver(t.options.Observe)
	return t, nil
}

// setDefaults replaces zeros by what they stand for.
func (o *Options) setDefaults() error {
	if o.Base == nil {
		o.Base = http.DefaultTransport
	}
	if o.Cost == nil {
		o.Cost = perHost
	}
	if o.Margin == 0 {
		o.Margin = DefaultMargin
	}
	if o.MaxCoolDown == 0 {
		o.MaxCoolDown = DefaultMaxCoolDown
	}
	if o.Margin > ratelimit.MaxWindow {
		return fmt.Errorf("%w: Margin %v is more than %v",
			ratelimit.ErrInvalidOptions, o.Margin, ratelimit.MaxWindow)
	}
	if o.MaxCoolDown < time.Millisecond || o.MaxCoolDown > ratelimit.MaxWindow {
		return fmt.Errorf("%w: MaxCoolDown %v is not between 1ms and %v",
			ratelimit.ErrInvalidOptions, o.MaxCoolDown, ratelimit.MaxWindow)
	}
	return nil
}

// perHost makes one key of all spellings of a host and port.
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
// An error of the limits is a [LimitError] if the request would have to wait longer than it may. It
// wraps [ratelimit.ErrUnavailable] if the store is unavailable, the error of the context if that
// has ended before, and otherwise is one of [ratelimit.Limiter.WaitN], such as
// [ratelimit.ErrExceedsLimit] for a request that costs more than a limit ever admits, or that of
// [Options.Cost]. The request was not sent then. What a request costs is spent also if sending it
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

// CloseIdleConnections closes those of Base, if it can; see [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.options.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// admit returns when r may be sent, or why it may not.
func (t *Transport) admit(r *http.Request) (key string, units int64, err error) {
	if r.URL == nil {
		return "", 0, errNoURL
	}
	if err := r.Context().Err(); err != nil { // which a store would call its own failure
		return "", 0, fmt.Errorf("upstream: %w", err)
	}
	key, units, err = t.options.Cost(r)
	switch {
	case err != nil:
		return "", 0, fmt.Errorf("upstream: the cost of the request: %w", err)
	case units == 0:
		return key, 0, nil
	}
	var room [4]ratelimit.Result
	results := room[:0]
	if t.options.NoWait {
		results, err = t.limiter.AllowEach(r.Context(), key, units, results)
	} else {
		results, err = t.limiter.WaitEach(r.Context(), key, units, results)
	}
	if err == nil && results[ratelimit.Binding(results)].Allowed {
		return key, units, nil
	}
	return "", 0, t.failure(r.Context(), results, err)
}
