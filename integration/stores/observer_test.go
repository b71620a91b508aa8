package stores

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/faultproxy"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/layer"
)

const (
	observedCallers = 8
	observedEach    = 12 // calls per caller
)

// TestObserverCountsWhatCallersGot: each call has one observation, which equals what its caller
// got, from the server, its cache, a layer or the policy; so the counts of observers and callers
// are equal.
func TestObserverCountsWhatCallersGot(t *testing.T) {
	t.Parallel() // mostly waits for answers that do not come
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		t.Run("policies", func(t *testing.T) { observePolicies(t, newObservedServer(t, image)) })
		t.Run("breaker", func(t *testing.T) { observeBreaker(t, newObservedServer(t, image)) })
		t.Run("degraded", func(t *testing.T) { observeDegraded(t, newObservedServer(t, image)) })
		t.Run("cache", func(t *testing.T) { observeCache(t, newObservedServer(t, image)) })
		t.Run("several limits", func(t *testing.T) {
			observeSeveral(t, newObservedServer(t, image))
		})
		t.Run("deadlines", func(t *testing.T) { observeDeadlines(t, newObservedServer(t, image)) })
		t.Run("waits", func(t *testing.T) { observeWaits(t, newObservedServer(t, image)) })
	})
}

// A callOutcome classifies the result of a call.
type callOutcome struct {
	op     driver.Op
	what   string           // "admitted", "refused", "done" for a reset, or the kind of an error
	source ratelimit.Source // source of the decision
}

const (
	admittedCall = "admitted"
	refusedCall  = "refused"
	resetCall    = "done"

	unknownCall    = "outcome unknown"
	unansweredCall = "unavailable"
	breakerCall    = "breaker open"
	tooMuchCall    = "exceeds the limit"
	invalidCall    = "invalid"
	gaveUpCall     = "gave up"

	// Suffixes for errors that also wrap a context's error. The deadline may be the store's own.
	wasCanceled = ", canceled"
	tooLate     = ", deadline exceeded"
)

func outcomeOf(op driver.Op, allowed bool, source ratelimit.Source, err error) callOutcome {
	switch {
	case err != nil:
		return callOutcome{op: op, what: kindOf(err)}
	case op == driver.OpReset: // a reset has no Result
		return callOutcome{op: op, what: resetCall}
	case allowed:
		return callOutcome{op, admittedCall, source}
	}
	return callOutcome{op, refusedCall, source}
}

func kindOf(err error) (kind string) {
	switch {
	case errors.Is(err, layer.ErrBreakerOpen):
		kind = breakerCall
	case errors.Is(err, ratelimit.ErrOutcomeUnknown):
		kind = unknownCall
	case errors.Is(err, ratelimit.ErrUnavailable):
		kind = unansweredCall
	case errors.Is(err, ratelimit.ErrExceedsLimit):
		kind = tooMuchCall
	case errors.Is(err, ratelimit.ErrInvalid):
		kind = invalidCall
	default: // a wait
		kind = gaveUpCall
	}
	switch {
	case errors.Is(err, context.Canceled):
		kind += wasCanceled
	case errors.Is(err, context.DeadlineExceeded):
		kind += tooLate
	}
	return kind
}

// A counter counts what a limiter's observer gets and, separately, what its callers get.
type counter struct {
	*ratelimit.Limiter

	mu            sync.Mutex
	observed, got map[callOutcome]int
	calls         int
	waited        time.Duration // as observed
}

func newCounter(l *ratelimit.Limiter) *counter {
	c := &counter{observed: make(map[callOutcome]int), got: make(map[callOutcome]int)}
	c.Limiter = l.WithObserver(c.observe)
	return c
}

// observations is the key of a context value of type *[]ratelimit.Observation: the observations of
// one call.
type observations struct{}

func (c *counter) observe(ctx context.Context, o ratelimit.Observation) {
	binding := o.Results[ratelimit.Binding(o.Results)]
	c.mu.Lock()
	c.observed[outcomeOf(o.Op, o.Admitted, binding.Source, o.Err)]++
	c.waited += o.Waited
	c.mu.Unlock()
	o.Results = slices.Clone(o.Results) // valid only until the observer returns
	seen := ctx.Value(observations{}).(*[]ratelimit.Observation)
	*seen = append(*seen, o)
}

// A method is a method of Limiter with the demand that it makes.
type method struct {
	name string
	op   driver.Op
	n    int64
	each bool // returns the result of each limit
	call func(ctx context.Context, l *ratelimit.Limiter, key string) ([]ratelimit.Result, error)
}

func allowN(n int64) method {
	return method{"AllowN", driver.OpTake, n, false,
		single(func(ctx context.Context, l *ratelimit.Limiter,
			key string) (ratelimit.Result, error) {
			return l.AllowN(ctx, key, n)
		})}
}

// single adapts a method that returns the result of the limit that binds.
func single(
	f func(context.Context, *ratelimit.Limiter, string) (ratelimit.Result, error),
) func(context.Context, *ratelimit.Limiter, string) ([]ratelimit.Result, error) {
	return func(ctx context.Context, l *ratelimit.Limiter, key string) ([]ratelimit.Result, error) {
		res, err := f(ctx, l, key)
		return []ratelimit.Result{res}, err
	}
}

var (
	allow = method{"Allow", driver.OpTake, 1, false,
		single(func(ctx context.Context, l *ratelimit.Limiter,
			key string) (ratelimit.Result, error) {
			return l.Allow(ctx, key)
		})}
	peek = method{"Peek", driver.OpPeek, 1, false,
		single(func(ctx context.Context, l *ratelimit.Limiter,
			key string) (ratelimit.Result, error) {
			return l.Peek(ctx, key)
		})}
	wait = method{"Wait", driver.OpTake, 1, false,
		single(func(ctx context.Context, l *ratelimit.Limiter,
			key string) (ratelimit.Result, error) {
			return l.Wait(ctx, key)
		})}
	allowAll = method{"AllowAll", driver.OpTake, 2, true,
		func(ctx context.Context, l *ratelimit.Limiter, key string) ([]ratelimit.Result, error) {
			return ratelimit.AllowAll(ctx, ratelimit.Claim{Limiter: l, Key: key, N: 2})
		}}
	peekAll = method{"PeekAll", driver.OpPeek, 2, true,
		func(ctx context.Context, l *ratelimit.Limiter, key string) ([]ratelimit.Result, error) {
			return ratelimit.PeekAll(ctx, ratelimit.Claim{Limiter: l, Key: key, N: 2})
		}}
	reset = method{"Reset", driver.OpReset, 0, false,
		func(ctx context.Context, l *ratelimit.Limiter, key string) ([]ratelimit.Result, error) {
			return nil, l.Reset(ctx, key)
		}}
)

// ask makes one call, counts its result and compares it with its observation.
func (c *counter) ask(
	ctx context.Context, t *testing.T, m method, key string,
) ([]ratelimit.Result, error) {
	t.Helper()
	var seen []ratelimit.Observation
	began := time.Now()
	results, err := m.call(context.WithValue(ctx, observations{}, &seen), c.Limiter, key)
	took := time.Since(began)

	var got callOutcome
	if len(results) == 0 { // a reset, or an error without results
		got = outcomeOf(m.op, false, 0, err)
	} else {
		binding := results[ratelimit.Binding(results)]
		got = outcomeOf(m.op, binding.Allowed, binding.Source, err)
	}
	c.mu.Lock()
	c.got[got]++
	c.calls++
	c.mu.Unlock()

	if len(seen) != 1 {
		t.Errorf("%s: got %d observations of one call, want 1", m.name, len(seen))
		return results, err
	}
	o, want := seen[0], results
	if !m.each && m.op != driver.OpReset {
		o.Results = []ratelimit.Result{o.Results[ratelimit.Binding(o.Results)]}
	}
	if m.each && err != nil {
		want = make([]ratelimit.Result, len(c.Limits()))
	}
	if m.op == driver.OpReset {
		want = o.Results
	}
	if o.Key != key || o.Op != m.op || o.N != m.n || !slices.Equal(o.Limits, c.Limits()) ||
		!slices.Equal(o.Results, want) || o.Err != err {
		t.Errorf("%s got %+v, %v; but the observer %+v", m.name, results, err, o)
	}
	if o.Elapsed <= 0 || o.Elapsed > took || o.Waited < 0 || o.Waited > o.Elapsed ||
		m.name != wait.name && o.Waited > 0 {
		t.Errorf("%s took %v; but the observer got %v, with a wait of %v",
			m.name, took, o.Elapsed, o.Waited)
	}
	return results, err
}

// crowd makes calls from several callers at once, with the methods in turn.
func (c *counter) crowd(t *testing.T, key string, methods ...method) {
	t.Helper()
	c.crowdWith(t, func(int) (context.Context, context.CancelFunc) {
		return t.Context(),
			func() {}
	}, key, methods...)
}

// crowdWith is crowd with a context for the i-th call of each caller.
func (c *counter) crowdWith(
	t *testing.T, with func(i int) (context.Context, context.CancelFunc), key string,
	methods ...method,
) {
	t.Helper()
	var wg sync.WaitGroup
	for range observedCallers {
		wg.Go(func() {
			for i := range observedEach {
				ctx, cancel := with(i)
				c.ask(ctx, t, methods[i%len(methods)], key)
				cancel()
			}
		})
	}
	wg.Wait()
}

// count returns how many calls had one of these outcomes.
func (c *counter) count(all []callOutcome) (n int) {
	for _, o := range all {
		n += c.got[o]
	}
	return n
}

// local returns how many calls were decided locally.
func (c *counter) local() (n int) {
	for o, of := range c.got {
		if o.source == fromLocal {
			n += of
		}
	}
	return n
}

// check compares the counts. Each outcome in must has occurred, and no other except those in may.
func (c *counter) check(t *testing.T, must []callOutcome, may ...callOutcome) {
	t.Helper()
	t.Logf("%d calls: %v", c.calls, c.got)
	if !maps.Equal(c.observed, c.got) {
		t.Errorf("the observer got %v\nbut callers got %v", c.observed, c.got)
	}
	for o, n := range c.got {
		if !slices.Contains(must, o) && !slices.Contains(may, o) {
			t.Errorf("%d calls had the outcome %v, want none", n, o)
		}
	}
	for _, o := range must {
		if c.got[o] == 0 {
			t.Errorf("no call had the outcome %v, want some", o)
		}
	}
}

const (
	fromStore = ratelimit.SourceStore
	fromCache = ratelimit.SourceCache
	fromLocal = ratelimit.SourceLocal
	fromOpen  = ratelimit.SourceOpen

	opTake  = driver.OpTake
	opPeek  = driver.OpPeek
	opReset = driver.OpReset
)

var bothPolicies = []ratelimit.Policy{ratelimit.FailClosed, ratelimit.FailOpen}

// failures returns the outcomes of calls that a server does not answer, whether their requests were
// sent or not.
func failures(ops ...driver.Op) (all []callOutcome) {
	for _, op := range ops {
		for _, kind := range []string{unknownCall, unansweredCall} {
			all = append(all, callOutcome{op: op, what: kind},
				callOutcome{op: op, what: kind + tooLate})
		}
	}
	return all
}

func observedLog(name string, max int64) ratelimit.Algorithm {
	return algorithm.SlidingLog(ratelimit.PerHour(name, max))
}

func newLimiter(
	t *testing.T, s ratelimit.Store, algorithms ...ratelimit.Algorithm,
) *ratelimit.Limiter {
	t.Helper()
	l, err := ratelimit.New(s, algorithms...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// An observedServer is a server with two stores that use the default timeout.
type observedServer struct {
	*servers.Server
	store   ratelimit.Store
	proxied ratelimit.Store // through proxy
	proxy   *faultproxy.Proxy
}

func newObservedServer(t *testing.T, image string) *observedServer {
	t.Helper()
	s := &observedServer{Server: servers.Start(t, image)}
	s.proxy = servers.Proxy(t, s.Addr)
	store := func(addr string) ratelimit.Store {
		return clients.Libraries[0].Client(t, clients.Dialing{Addrs: []string{addr}, Prompt: true}).
			NewStore(t, nil)
	}
	s.store, s.proxied = store(s.Addr), store(s.proxy.Addr())
	return s
}

// patient returns a store with a timeout for a busy machine.
func (s *observedServer) patient(t *testing.T) ratelimit.Store {
	t.Helper()
	return clients.Libraries[0].Client(t, clients.Dialing{Addrs: []string{s.Addr}}).
		NewStore(t, &serverstore.Options{Timeout: clients.Patient})
}

// ready waits until the server decides.
func ready(t *testing.T, s ratelimit.Store) {
	t.Helper()
	clients.Decided(t, s, clients.Take(servers.FreshKey(t)))
}

// An outage makes a server unavailable in a certain way.
type outage struct {
	name       string
	begin, end func(*observedServer, testing.TB)
	store      func(*observedServer) ratelimit.Store // store that the outage affects
	kind       string                                // kind of an error that surely occurs
	unknown    bool                                  // whether some outcome is surely unknown
}

func direct(s *observedServer) ratelimit.Store { return s.store }

var (
	frozen = outage{
		"frozen",
		func(s *observedServer, t testing.TB) { s.Pause(t) },
		func(s *observedServer, t testing.TB) { s.Unpause(t) },
		direct,
		"", // a busy machine may send nothing within a store's timeout
		false,
	}
	killed = outage{
		"killed",
		func(s *observedServer, t testing.TB) { s.Kill(t) },
		func(s *observedServer, t testing.TB) { s.Start(t) },
		direct,
		unansweredCall,
		false,
	}
	answersLost = outage{
		"answers lost",
		func(s *observedServer, _ testing.TB) {
			s.proxy.Set(faultproxy.Fault{Kind: faultproxy.CutAfter, Holding: "evalsha"})
		},
		func(s *observedServer, _ testing.TB) { s.proxy.Heal() },
		func(s *observedServer) ratelimit.Store { return s.proxied },
		"", // a call may wait for a connection until its timeout
		true,
	}
	outages = []outage{frozen, killed, answersLost}
)

// during runs f in an outage and returns when the server decides again.
func (o outage) during(t *testing.T, s *observedServer, f func()) {
	t.Helper()
	ready(t, o.store(s))
	o.begin(s, t)
	defer func() {
		o.end(s, t)
		ready(t, o.store(s))
	}()
	f()
}

func observePolicies(t *testing.T, s *observedServer) {
	patiently := s.patient(t)
	up := func(t *testing.T, p ratelimit.Policy) {
		c := newCounter(newLimiter(t, patiently,
			observedLog("requests", observedCallers*observedEach/4)).WithPolicy(p))
		key := servers.FreshKey(t)
		c.ask(t.Context(), t, peek, key)
		c.crowd(t, key, allow, allowN(2), peek)
		c.crowd(t, key, reset)
		if _, err := c.ask(t.Context(), t, allowN(1000), key); !errors.Is(err,
			ratelimit.ErrExceedsLimit) {
			t.Errorf("got %v, want ErrExceedsLimit", err)
		}
		if _, err := c.ask(t.Context(), t, allow, ""); !errors.Is(err, ratelimit.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
		c.check(t, []callOutcome{
			{opTake, admittedCall, fromStore}, {opTake, refusedCall, fromStore},
			{op: opReset, what: resetCall},
			{op: opTake, what: tooMuchCall}, {op: opTake, what: invalidCall},
			{opPeek, admittedCall, fromStore},
		}, callOutcome{opPeek, refusedCall, fromStore})
	}
	for _, p := range bothPolicies {
		t.Run(fmt.Sprint(p, ", up"), func(t *testing.T) { up(t, p) })
		for _, o := range outages {
			t.Run(fmt.Sprintf("%v, %s", p, o.name), func(t *testing.T) {
				l := newLimiter(t, o.store(s), observedLog("requests", 10)).WithPolicy(p)
				c := newCounter(l)
				o.during(t, s, func() {
					c.crowd(t, servers.FreshKey(t), allow, allowN(2), peek, reset)
				})
				var must []callOutcome
				may := failures(opReset)
				if p == ratelimit.FailOpen { // no policy admits a reset
					must = append(must, callOutcome{opTake, admittedCall, fromOpen},
						callOutcome{opPeek, admittedCall, fromOpen})
				} else {
					may = failures(opTake, opPeek, opReset)
				}
				if o.kind != "" {
					must = append(must, callOutcome{op: opReset, what: o.kind})
				}
				c.check(t, must, may...)
				lost := []callOutcome{{op: opReset, what: unknownCall},
					{op: opReset, what: unknownCall + tooLate}}
				if o.unknown && c.count(lost) == 0 {
					t.Error("no outcome was unknown: this test proves nothing")
				}
				if n := c.count(failures(opReset)); n != observedCallers*observedEach/4 {
					t.Errorf("%d resets failed, want all %d", n, observedCallers*observedEach/4)
				}
			})
		}
		t.Run(fmt.Sprint(p, ", up again"), func(t *testing.T) { up(t, p) })
	}
}

func observeBreaker(t *testing.T, s *observedServer) {
	const most, opensAfter = observedCallers * observedEach / 4, 20
	guarded, err := layer.NewBreaker(s.store, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := newLimiter(t, guarded, observedLog("requests", most))
	storeDecides := func(t *testing.T, p ratelimit.Policy) {
		t.Helper()
		servers.Within(t, func() bool {
			_, err := guarded.Take(t.Context(), clients.Take(servers.FreshKey(t)))
			return err == nil && guarded.Stats().State == layer.BreakerClosed
		}, "the breaker did not close")
		c := newCounter(l.WithPolicy(p))
		c.crowd(t, servers.FreshKey(t), allow)
		must := []callOutcome{{opTake, admittedCall, fromStore}, {opTake, refusedCall, fromStore}}
		// On a busy machine calls may time out.
		c.check(t, must, append(failures(opTake), callOutcome{opTake, admittedCall, fromOpen})...)
	}
	for _, p := range bothPolicies {
		t.Run(p.String(), func(t *testing.T) {
			storeDecides(t, p)
			refused := guarded.Stats().Refused
			frozen.during(t, s, func() {
				c := newCounter(l.WithPolicy(p))
				servers.Within(t, func() bool {
					c.crowd(t, servers.FreshKey(t), allow)
					return guarded.Stats().Refused > refused
				}, "the breaker did not open")
				c.crowd(t, servers.FreshKey(t), allow, peek)
				if p == ratelimit.FailOpen {
					c.check(t, []callOutcome{{opTake, admittedCall, fromOpen},
						{opPeek, admittedCall, fromOpen}})
				} else {
					c.check(t, []callOutcome{{op: opTake, what: breakerCall},
						{op: opPeek, what: breakerCall}}, failures(opTake, opPeek)...)
					if n := c.count(failures(opTake)); n < opensAfter {
						t.Errorf("%d calls failed before the breaker opened, want %d or more",
							n, opensAfter)
					}
				}
			})
			storeDecides(t, p)
		})
	}
}

func observeDegraded(t *testing.T, s *observedServer) {
	const most = 20
	for _, p := range bothPolicies {
		for _, o := range outages {
			t.Run(fmt.Sprintf("%v, %s", p, o.name), func(t *testing.T) {
				local, err := layer.NewDegraded(o.store(s), &layer.DegradedOptions{Instances: 2})
				if err != nil {
					t.Fatal(err)
				}
				defer local.Close()
				c := newCounter(newLimiter(t, local, observedLog("requests", most)).WithPolicy(p))
				o.during(t, s, func() {
					c.crowd(t, servers.FreshKey(t), allow, peek, allowN(most), reset)
				})
				// Demands for more units than the local share, and resets, stay undecided. No
				// policy applies to them.
				must := []callOutcome{{opTake, admittedCall, fromLocal},
					{opTake, refusedCall, fromLocal}, {opPeek, admittedCall, fromLocal}}
				may := append(failures(opReset), callOutcome{opPeek, refusedCall, fromLocal})
				may = append(may, failures(opTake)...)
				c.check(t, must, may...)
				if n, st := c.local(), local.Stats(); st.Local != int64(n) ||
					st.Undecided != int64(c.calls-n) {
					t.Errorf("%d of %d calls were decided locally, but the store counted %+v",
						n, c.calls, st)
				}
			})
		}
	}
}

func observeCache(t *testing.T, s *observedServer) {
	const most = observedCallers * observedEach / 4
	clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
		for _, p := range bothPolicies {
			t.Run(p.String(), func(t *testing.T) {
				store := lib.NewCache(t, clients.Dialing{Addrs: []string{s.Addr}},
					clients.CacheOptions{Age: time.Hour})
				c := newCounter(newLimiter(t, store, observedLog("requests", most)).WithPolicy(p))
				key := servers.FreshKey(t)
				c.crowd(t, key, allow)
				cached := c.got[callOutcome{opTake, refusedCall, fromCache}]
				c.crowd(t, key, peek)
				c.check(t, []callOutcome{
					{opTake, admittedCall, fromStore}, {opTake, refusedCall, fromStore},
					{opTake, refusedCall, fromCache}, {opPeek, refusedCall, fromStore},
				})
				if hits := store.Stats().Cache.Hits; hits != int64(cached) {
					t.Errorf("%d refusals came from the cache, but the store counted %d",
						cached, hits)
				}
			})
		}
	})
}

func observeSeveral(t *testing.T, s *observedServer) {
	patiently := s.patient(t)
	limits := []ratelimit.Algorithm{observedLog("user", observedCallers*observedEach/4),
		observedLog("tenant", observedCallers*observedEach)}
	methods := []method{allow, allowAll, peek, peekAll}
	for _, p := range bothPolicies {
		t.Run(fmt.Sprint(p, ", up"), func(t *testing.T) {
			c := newCounter(newLimiter(t, patiently, limits...).WithPolicy(p))
			key := servers.FreshKey(t)
			c.crowd(t, key, methods...)
			c.crowd(t, key, reset)
			if res, err := c.ask(t.Context(), t, peekAll, key); err != nil ||
				res[0].Remaining != limits[0].Limit().Max ||
				res[1].Remaining != limits[1].Limit().Max {
				t.Errorf("got %+v, %v after the resets; want nothing recorded", res, err)
			}
			c.check(t, []callOutcome{
				{opTake, admittedCall, fromStore}, {opTake, refusedCall, fromStore},
				{opPeek, admittedCall, fromStore}, {op: opReset, what: resetCall},
			}, callOutcome{opPeek, refusedCall, fromStore})
		})
		t.Run(fmt.Sprint(p, ", down"), func(t *testing.T) {
			c := newCounter(newLimiter(t, s.store, limits...).WithPolicy(p))
			key := servers.FreshKey(t)
			killed.during(t, s, func() {
				c.crowd(t, key, methods...)
				res, err := c.ask(t.Context(), t, allowAll, key)
				if p == ratelimit.FailClosed {
					if len(res) != 0 || !errors.Is(err, ratelimit.ErrUnavailable) {
						t.Errorf("got %+v, %v; want ErrUnavailable", res, err)
					}
				} else if want := []ratelimit.Result{
					{Allowed: true, Source: fromOpen, Units: 2, Limit: limits[0].Limit()},
					{Allowed: true, Source: fromOpen, Units: 2, Limit: limits[1].Limit()},
				}; err != nil || !slices.Equal(res, want) {
					t.Errorf("got %+v, %v; want %+v", res, err, want)
				}
			})
			if p == ratelimit.FailOpen {
				c.check(t, []callOutcome{{opTake, admittedCall, fromOpen},
					{opPeek, admittedCall, fromOpen}})
			} else {
				c.check(t, []callOutcome{{op: opTake, what: unansweredCall},
					{op: opPeek, what: unansweredCall}}, failures(opTake, opPeek)...)
			}
		})
	}
}

func observeDeadlines(t *testing.T, s *observedServer) {
	unsent, sent := callOutcome{op: opTake, what: unansweredCall + tooLate},
		callOutcome{op: opTake, what: unknownCall + tooLate}
	// ended returns contexts that are canceled or past their deadline, in turn.
	ended := func(i int) (context.Context, context.CancelFunc) {
		if i%2 == 0 {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx, cancel
		}
		return context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	}
	short := func(i int) (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), time.Duration(i%10)*50*time.Microsecond)
	}
	for _, p := range bothPolicies {
		l := newLimiter(t, s.store, observedLog("requests", 10)).WithPolicy(p)
		t.Run(fmt.Sprint(p, ", ended"), func(t *testing.T) {
			ready(t, s.store)
			c := newCounter(l)
			c.crowdWith(t, ended, servers.FreshKey(t), allow)
			c.check(t, []callOutcome{unsent, {op: opTake, what: unansweredCall + wasCanceled}})
		})
		t.Run(fmt.Sprint(p, ", short"), func(t *testing.T) {
			ready(t, s.store)
			c := newCounter(l)
			c.crowdWith(t, short, servers.FreshKey(t), allow)
			// No policy admits a call whose own context has ended.
			c.check(t, []callOutcome{unsent}, sent, callOutcome{opTake, admittedCall, fromStore},
				callOutcome{opTake, refusedCall, fromStore})
		})
		t.Run(fmt.Sprint(p, ", frozen"), func(t *testing.T) {
			c := newCounter(l)
			frozen.during(t, s, func() {
				c.crowdWith(t, func(i int) (context.Context, context.CancelFunc) {
					timeout := 20 * time.Millisecond // shorter than the store's
					if i%3 == 0 {
						timeout = servers.FaultTimeout
					}
					return context.WithTimeout(t.Context(), timeout)
				}, servers.FreshKey(t), allow)
			})
			// Only calls whose own context has not ended are left to the policy.
			if p == ratelimit.FailClosed {
				c.check(t, nil, failures(opTake)...)
				return
			}
			admitted := callOutcome{opTake, admittedCall, fromOpen}
			c.check(t, []callOutcome{admitted}, sent, unsent)
			if n := c.got[admitted]; n != observedCallers*observedEach/3 {
				t.Errorf("the policy admitted %d calls, want %d", n, observedCallers*observedEach/3)
			}
		})
	}
}

func observeWaits(t *testing.T, s *observedServer) {
	store := s.patient(t)
	brief := algorithm.SlidingLog(ratelimit.Limit{Name: "brief",
		Max: 10, Window: 200 * time.Millisecond})
	for _, p := range bothPolicies {
		t.Run(p.String(), func(t *testing.T) {
			c := newCounter(newLimiter(t, store, brief).WithPolicy(p))
			key := servers.FreshKey(t)
			c.crowd(t, key, wait)
			if least := 8 * brief.Limit().Window; c.waited < least {
				t.Errorf("%d units of %v were admitted after waits of %v in all, want %v or more",
					observedCallers*observedEach, brief.Limit(), c.waited, least)
			}
			c.check(t, []callOutcome{{opTake, admittedCall, fromStore}})

			// A wait that is given up returns the refusal beside the error.
			c = newCounter(newLimiter(t, store, observedLog("requests", 1)).WithPolicy(p))
			key = servers.FreshKey(t)
			c.crowdWith(t, func(int) (context.Context, context.CancelFunc) {
				return context.WithTimeout(t.Context(), clients.Patient)
			}, key, wait)
			ctx, cancel := context.WithTimeout(t.Context(), clients.Patient)
			defer cancel()
			res, err := c.ask(ctx, t, wait, key)
			if !errors.Is(err, context.DeadlineExceeded) || len(res) != 1 || res[0].Allowed ||
				res[0].RetryAfter <= 0 {
				t.Errorf("got %+v, %v; want the refusal and DeadlineExceeded", res, err)
			}
			c.check(t, []callOutcome{{opTake, admittedCall, fromStore},
				{op: opTake, what: gaveUpCall + tooLate}})
		})
	}
}
