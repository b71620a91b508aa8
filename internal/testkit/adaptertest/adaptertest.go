// Package adaptertest has the conduct that all adapters share, whatever their protocol: one table
// of cases that each of them passes.
package adaptertest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
	"github.com/truewindow/ratelimit/layer"
)

// An Adapter limits the calls of one protocol.
type Adapter struct {
	// Serve starts what s describes, until the test ends, and returns how to call it.
	Serve func(t testing.TB, s Service) Call
	// Lacks has the cases that the protocol or its framework makes impossible, and why.
	Lacks map[string]string
}

// A Service is what an adapter limits.
type Service struct {
	// Choose returns the claims of a call that carries a word.
	Choose func(word string) ([]ratelimit.Claim, error)
	// Work is what the service does for a call that is passed on. An error is a failure of the
	// call; Work may also panic, or wait until ctx ends.
	Work func(ctx context.Context) error
	// Counting says that units under Budgets count only if the call succeeds.
	Counting bool
	// Wait says that a client waits until its calls are admitted.
	Wait bool
}

// A Call makes a call that carries a word, and returns what the caller gets. The call breaks off
// when ctx ends.
type Call func(ctx context.Context, word string) Answer

// An Answer is what the caller gets.
type Answer struct {
	Reason     edge.Reason   // zero if the call was passed on
	Limits     []string      // that refuse
	RetryAfter time.Duration // as told, or 0
	Failed     bool          // the call was passed on and failed
	Text       string        // all else that the caller gets, such as messages
}

// Coarsest is how much longer than it is a wait may be told: protocols have whole seconds.
const Coarsest = time.Second

// secret is in keys and errors, and never in an answer.
const secret = "secret-word"

// Run runs all cases on a.
func Run(t *testing.T, a Adapter) {
	t.Helper()
	lacks := make(map[string]bool)
	for name := range a.Lacks {
		lacks[name] = true
	}
	for _, c := range cases {
		if lacks[c.name] {
			delete(lacks, c.name)
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(&try{T: t, adapter: a, store: limittest.NewStore(t, nil)})
		})
	}
	for name := range lacks {
		t.Errorf("there is no case %q to lack", name)
	}
}

var cases = []struct {
	name  string
	check func(*try)
}{
	{"admitted", checkAdmitted},
	{"not limited", checkNotLimited},
	{"refused", checkRefused},
	{"refused by one of two", checkOneOfTwo},
	{"cost", checkCost},
	{"never", checkNever},
	{"reduced", checkReduced},
	{"undecided", checkUndecided},
	{"open", checkOpen},
	{"unattributed", checkUnattributed},
	{"misconfigured", checkMisconfigured},
	{"wait", checkWait},
	{"budget", func(e *try) { checkBudget(e, succeed, 1) }},
	{"budget, failure", func(e *try) { checkBudget(e, fail, 0) }},
	{"budget, panic", func(e *try) { checkBudget(e, crash, 0) }},
	{"budget, disconnect", func(e *try) { checkBudget(e, leave, 0) }},
	{"in flight", func(e *try) { checkInFlight(e, succeed) }},
	{"in flight, failure", func(e *try) { checkInFlight(e, fail) }},
	{"in flight, panic", func(e *try) { checkInFlight(e, crash) }},
	{"in flight, disconnect", func(e *try) { checkInFlight(e, leave) }},
}

// A try is a case on an adapter.
type try struct {
	*testing.T
	adapter Adapter
	store   driver.Store
	worked  atomic.Int64 // calls that were passed on
}

// serve starts a service that counts the calls that are passed on.
func (e *try) serve(s Service) Call {
	e.Helper()
	work := s.Work
	s.Work = func(ctx context.Context) error {
		e.worked.Add(1)
		if work == nil {
			return nil
		}
		return work(ctx)
	}
	call := e.adapter.Serve(e.T, s)
	return func(ctx context.Context, word string) Answer {
		a := call(ctx, word)
		if strings.Contains(a.Text, secret) {
			e.Errorf("an answer has the text of a key or an error: %q", a.Text)
		}
		return a
	}
}

// claims returns a Choose of one claim for each limiter, of one unit, or of as many as the word
// says.
func claims(limiters ...*ratelimit.Limiter) func(string) ([]ratelimit.Claim, error) {
	return func(word string) (claims []ratelimit.Claim, err error) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			n = 1
		}
		for _, l := range limiters {
			claims = append(claims, ratelimit.Claim{Limiter: l, Key: secret, N: n})
		}
		return claims, nil
	}
}

// want checks an answer, and how many calls were passed on until then.
func (e *try) want(a Answer, reason edge.Reason, worked int64) {
	e.Helper()
	if a.Reason != reason || a.Failed {
		e.Errorf("got %q, failed: %t; want %q: %s", a.Reason, a.Failed, reason, a.Text)
	}
	if n := e.worked.Load(); n != worked {
		e.Errorf("%d calls were passed on, want %d", n, worked)
	}
}

// wantRefused checks a refusal by limits, after which waiting for up to longest helps.
func (e *try) wantRefused(a Answer, worked int64, longest time.Duration, limits ...string) {
	e.Helper()
	e.want(a, edge.Exceeded, worked)
	if !slices.Equal(a.Limits, limits) {
		e.Errorf("limits %q refuse, want %q", a.Limits, limits)
	}
	if least := longest / 2; a.RetryAfter <= least || a.RetryAfter > longest+Coarsest {
		e.Errorf("got RetryAfter %v, want more than %v and at most %v", a.RetryAfter, least,
			longest+Coarsest)
	}
}

func checkAdmitted(e *try) {
	l := limittest.NewLimiter(e, e.store, ratelimit.PerHour("hour", 2))
	call := e.serve(Service{Choose: claims(l)})
	for i := range int64(2) {
		e.want(call(e.Context(), "word"), 0, i+1)
	}
	e.recorded(l, 2)
}

// recorded checks how many units of l are used.
func (e *try) recorded(l *ratelimit.Limiter, want int64) {
	e.Helper()
	res, err := l.Peek(e.Context(), secret)
	if err != nil {
		e.Fatal(err)
	}
	if n := res.Limit.Max - res.Remaining; n != want {
		e.Errorf("%d units are used, want %d", n, want)
	}
}

func checkNotLimited(e *try) {
	call := e.serve(Service{Choose: claims()})
	for i := range int64(3) {
		e.want(call(e.Context(), "word"), 0, i+1)
	}
}

func checkRefused(e *try) {
	l := limittest.NewLimiter(e, e.store, ratelimit.PerHour("hour", 1))
	call := e.serve(Service{Choose: claims(l)})
	e.want(call(e.Context(), "word"), 0, 1)
	e.wantRefused(call(e.Context(), "word"), 1, time.Hour, "hour")
	e.recorded(l, 1)
}

// checkOneOfTwo: a call is refused by one of its limits, and takes nothing from the other.
func checkOneOfTwo(e *try) {
	few := limittest.NewLimiter(e, e.store, ratelimit.PerHour("few", 1))
	many := limittest.NewLimiter(e, e.store, ratelimit.PerHour("many", 5))
	call := e.serve(Service{Choose: claims(many, few)})
	e.want(call(e.Context(), "word"), 0, 1)
	e.wantRefused(call(e.Context(), "word"), 1, time.Hour, "few")
	e.recorded(many, 1)
}

func checkCost(e *try) {
	l := limittest.NewLimiter(e, e.store, ratelimit.PerHour("hour", 5))
	call := e.serve(Service{Choose: claims(l)})
	e.want(call(e.Context(), "3"), 0, 1)
	e.wantRefused(call(e.Context(), "3"), 1, time.Hour, "hour")
	e.want(call(e.Context(), "2"), 0, 2)
	e.recorded(l, 5)
}

// checkNever: a call that costs more than a limit ever admits is told no time to wait.
func checkNever(e *try) {
	l := limittest.NewLimiter(e, e.store, ratelimit.PerHour("hour", 5))
	call := e.serve(Service{Choose: claims(l)})
	for _, word := range []string{"6", strconv.FormatInt(driver.MaxUnits+1, 10)} {
		a := call(e.Context(), word)
		if a.Reason == edge.Exceeded { // some protocols have no other word for it
			a.Reason = edge.Never
		}
		e.want(a, edge.Never, 0)
		if a.RetryAfter != 0 {
			e.Errorf("got RetryAfter %v of a call that is never admitted", a.RetryAfter)
		}
	}
	e.recorded(l, 0)
}

// down is a store that is unavailable.
type down struct{ driver.Store }

var errDown = errors.Join(driver.ErrUnavailable, errors.New(secret))

func (down) Take(context.Context, driver.Demand) (driver.Result, error) {
	return driver.Result{}, errDown
}

func (down) TakeAll(context.Context, []driver.Demand, []driver.Result) error { return errDown }

// checkReduced: a limit of a degraded store that refuses below the real limit is not the caller's
// fault.
func checkReduced(e *try) {
	store, err := layer.NewDegraded(down{e.store}, &layer.DegradedOptions{Instances: 10})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = store.Close() })
	l := limittest.NewLimiter(e, store, ratelimit.PerHour("hour", 10))
	call := e.serve(Service{Choose: claims(l)})
	e.want(call(e.Context(), "word"), 0, 1)
	a := call(e.Context(), "word")
	e.want(a, edge.Reduced, 1)
	if a.RetryAfter == 0 {
		e.Error("got no RetryAfter")
	}
}

func checkUndecided(e *try) {
	l := limittest.NewLimiter(e, down{e.store}, ratelimit.PerHour("hour", 10))
	call := e.serve(Service{Choose: claims(l)})
	e.want(call(e.Context(), "word"), edge.Undecided, 0)
}

// checkOpen: the policy of a limiter admits calls while its store is unavailable.
func checkOpen(e *try) {
	l := limittest.NewLimiter(e, down{e.store}, ratelimit.PerHour("hour", 10)).
		WithPolicy(ratelimit.FailOpen)
	call := e.serve(Service{Choose: claims(l)})
	e.want(call(e.Context(), "word"), 0, 1)
}

func checkUnattributed(e *try) {
	l := limittest.NewLimiter(e, e.store, ratelimit.PerHour("hour", 10))
	call := e.serve(Service{Choose: func(word string) ([]ratelimit.Claim, error) {
		if word == "error" {
			return nil, errors.New(secret)
		}
		return []ratelimit.Claim{{Limiter: l, N: 1}}, nil // no key
	}})
	for _, word := range []string{"error", "key"} {
		e.want(call(e.Context(), word), edge.Unattributed, 0)
	}
}

// checkMisconfigured: limiters of two stores can never decide together.
func checkMisconfigured(e *try) {
	other := limittest.NewStore(e, nil)
	call := e.serve(Service{Choose: claims(
		limittest.NewLimiter(e, e.store, ratelimit.PerHour("here", 10)),
		limittest.NewLimiter(e, other, ratelimit.PerHour("there", 10)))})
	e.want(call(e.Context(), "word"), edge.Misconfigured, 0)
}

// checkWait: a client that waits sends the second call when it is admitted, and one that would wait
// beyond its deadline not at all.
func checkWait(e *try) {
	const window = 300 * time.Millisecond
	l := limittest.NewLimiter(e, e.store,
		ratelimit.Limit{Name: "window", Max: 1, Window: window}, ratelimit.PerHour("hour", 2))
	call := e.serve(Service{Choose: claims(l), Wait: true})
	began := time.Now()
	e.want(call(e.Context(), "word"), 0, 1)
	e.want(call(e.Context(), "word"), 0, 2)
	if waited := time.Since(began); waited < window {
		e.Errorf("two calls within %v, want %v at least", waited, window)
	}
	ctx, cancel := context.WithTimeout(e.Context(), time.Minute)
	defer cancel()
	a := call(ctx, "word")
	if !slices.Contains(a.Limits, "hour") {
		e.Errorf("limits %q refuse, want hour", a.Limits)
	}
	a.Limits = nil // the other limit may refuse too
	e.wantRefused(a, 2, time.Hour)
}
