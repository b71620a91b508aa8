package layer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// The defaults of a breaker.
const (
	breakerFailures = 20
	breakerPause    = 500 * time.Millisecond
)

func demand(op driver.Op) driver.Demand {
	return driver.Demand{Key: "secret", Algorithm: perMinute, Op: op, N: 1}
}

var errPanic = errors.New("planted")

// inside is a store that answers or fails as the test sets. Calls that wait return what is sent on
// answers.
type inside struct {
	asked atomic.Int64

	mu      sync.Mutex
	err     error
	answers chan error // instead of err
}

func (s *inside) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.answers = err, nil
}

// wait makes calls wait for what is sent on the channel that it returns.
func (s *inside) wait() chan<- error {
	s.mu.Lock()
	defer s.mu.Unlock()
	answers := make(chan error)
	s.answers = answers
	return answers
}

func (s *inside) ask(ctx context.Context) error {
	s.asked.Add(1)
	s.mu.Lock()
	err, answers := s.err, s.answers
	s.mu.Unlock()
	if err == errPanic {
		panic(err)
	}
	if answers == nil {
		return err
	}
	select {
	case err = <-answers:
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", driver.ErrOutcomeUnknown, ctx.Err())
	}
	return err
}

func (s *inside) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	err := driver.CheckTake(ctx, d)
	if err == nil {
		err = s.ask(ctx)
	}
	if err != nil {
		return driver.Result{}, err
	}
	return driver.Result{Allowed: true, Limit: driver.Limit{Max: 7}}, nil
}

func (s *inside) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	err := driver.CheckTakeAll(ctx, ds, out)
	if err == nil {
		err = s.ask(ctx)
	}
	return err
}

// bench is a breaker that opens after three failures and pauses for a second, with what is inside
// and the changes of its state.
type bench struct {
	*layer.Breaker
	inside  *inside
	changes []string
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{inside: &inside{}}
	opts := &layer.BreakerOptions{Failures: 3, Pause: time.Second}
	opts.OnChange = func(from, to layer.BreakerState) {
		if got := b.Stats().State; got != to {
			t.Errorf("the state is %v in the change to %v", got, to)
		}
		b.changes = append(b.changes, string(from+" to "+to))
	}
	store, err := layer.NewBreaker(b.inside, opts)
	if err != nil {
		t.Fatal(err)
	}
	b.Breaker = store
	return b
}

// fails calls n times, and checks that the error is that of the store inside.
func (b *bench) fails(t *testing.T, n int, with error) {
	t.Helper()
	b.inside.fail(with)
	for range n {
		if _, err := b.Take(t.Context(), demand(driver.OpTake)); !errors.Is(err, with) ||
			errors.Is(err, layer.ErrBreakerOpen) {
			t.Fatalf("%v, want %v from inside", err, with)
		}
	}
}

func (b *bench) answers(t *testing.T, n int) {
	t.Helper()
	b.inside.fail(nil)
	for range n {
		if res, err := b.Take(t.Context(), demand(driver.OpTake)); err != nil || !res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
	}
}

// refuses calls Take and TakeAll, and checks that neither calls the store inside.
func (b *bench) refuses(t *testing.T) {
	t.Helper()
	asked, refused := b.inside.asked.Load(), b.Stats().Refused
	want := func(d driver.Demand, err error) {
		t.Helper()
		if !errors.Is(err, layer.ErrBreakerOpen) || !errors.Is(err, driver.ErrUnavailable) ||
			errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Errorf("%v: error %v, want ErrOpen", d.Op, err)
		}
	}
	ds := []driver.Demand{demand(driver.OpTake), demand(driver.OpForce)}
	for _, d := range ds {
		res, err := b.Take(t.Context(), d)
		if want(d, err); res != (driver.Result{}) {
			t.Errorf("%v: %+v beside the error", d.Op, res)
		}
	}
	ds[1].Algorithm = algorithm.SlidingLog(driver.PerHour("hour", 9))
	want(ds[1], b.TakeAll(t.Context(), ds, make([]driver.Result, 2)))
	if got := b.inside.asked.Load(); got != asked {
		t.Errorf("the store inside was called %d times", got-asked)
	}
	if got := b.Stats().Refused; got != refused+3 {
		t.Errorf("%d refused, want 3", got-refused)
	}
}

func (b *bench) wantChanges(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(b.changes, want) {
		t.Errorf("changes %q, want %q", b.changes, want)
	}
	b.changes = nil
}

const (
	opens, opensAgain, tries, closes = "closed to open", "half-open to open", "open to half-open",
		"half-open to closed"

	past = time.Second + time.Nanosecond // when the pause is over
)

func TestBreakerOpensAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.answers(t, 5)
		b.fails(t, 3, driver.ErrOutcomeUnknown)
		b.wantChanges(t, opens)
		b.refuses(t)
		time.Sleep(past - 2*time.Nanosecond)
		b.refuses(t)
		b.wantChanges(t)
		time.Sleep(2 * time.Nanosecond)
		b.fails(t, 1, driver.ErrUnavailable)
		b.wantChanges(t, tries, opensAgain)
		b.refuses(t)
		time.Sleep(time.Hour)
		if got := b.Stats().State; got != layer.BreakerOpen {
			t.Errorf("%v without a demand", got)
		}
		b.answers(t, 5)
		b.wantChanges(t, tries, closes)
		down := fmt.Errorf("%w: connection refused", driver.ErrUnavailable)
		b.fails(t, 2, down)
		b.answers(t, 1)
		b.wantChanges(t)
		if got := b.Stats(); got.Opened != 2 || got.Failures != 6 {
			t.Errorf("%+v", got)
		}
		if got := b.Stats().LastFailure; got != down {
			t.Errorf("LastFailure: %v, want %v", got, down)
		}
	})
}

// TestBreakerInARow: failures with an answer between them are not in a row, whether Take or TakeAll
// got it.
func TestBreakerInARow(t *testing.T) {
	b := newBench(t)
	two := []driver.Demand{demand(driver.OpTake)}
	for range 5 {
		b.fails(t, 2, driver.ErrUnavailable)
		b.inside.fail(nil)
		if err := b.TakeAll(t.Context(), two, make([]driver.Result, 1)); err != nil {
			t.Fatal(err)
		}
		b.fails(t, 2, driver.ErrUnavailable)
		if !b.Failing() {
			t.Error("not failing after a failure")
		}
		b.answers(t, 1)
		if b.Failing() {
			t.Error("failing after an answer: every call takes a lock")
		}
	}
	b.wantChanges(t)
	b.fails(t, 2, driver.ErrUnavailable)
	if err := b.TakeAll(t.Context(), two,
		make([]driver.Result, 1)); !errors.Is(err, driver.ErrUnavailable) {
		t.Fatal(err)
	}
	b.wantChanges(t, opens)
}

// TestBreakerCachedRefusals: an answer that is all from the cache of the store inside is not an
// answer of the server: it does not end a row of failures and does not close the breaker. One
// result from the server, or a local one, is enough.
func TestBreakerCachedRefusals(t *testing.T) {
	take := func(s driver.Store, op driver.Op) error {
		_, err := s.Take(t.Context(), demand(op))
		return err
	}
	both := func(s driver.Store) error {
		ds := []driver.Demand{demand(driver.OpTake), demand(driver.OpTake)}
		ds[1].Key = "other"
		return s.TakeAll(t.Context(), ds, make([]driver.Result, 2))
	}
	for _, tt := range []struct {
		name  string
		cache remembering
		ask   func(driver.Store) error
		want  layer.BreakerState
	}{
		{"take", remembering{take: true},
			func(s driver.Store) error { return take(s, driver.OpTake) }, layer.BreakerOpen},
		{"peek", remembering{peek: true},
			func(s driver.Store) error { return take(s, driver.OpPeek) }, layer.BreakerOpen},
		{"all of several", remembering{all: 2}, both, layer.BreakerOpen},
		{"one of several", remembering{all: 1}, both, layer.BreakerClosed},
		{"none of several", remembering{all: 0}, both, layer.BreakerClosed},
		{"local", remembering{take: true, source: driver.SourceLocal},
			func(s driver.Store) error { return take(s, driver.OpTake) }, layer.BreakerClosed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := tt.cache
				in.inside = &inside{}
				s, err := layer.NewBreaker(&in, &layer.BreakerOptions{Failures: 3})
				if err != nil {
					t.Fatal(err)
				}
				in.fail(driver.ErrUnavailable)
				for range 3 {
					if err := take(s, driver.OpForce); err == nil {
						t.Fatal("no failure")
					}
					if err := tt.ask(s); err != nil && !errors.Is(err, layer.ErrBreakerOpen) {
						t.Fatal(err)
					}
				}
				if state := s.Stats().State; state != tt.want {
					t.Errorf("%v after three failures with such answers between them, want %v",
						state, tt.want)
				}
				for s.Stats().State != layer.BreakerOpen {
					_ = take(s, driver.OpForce)
				}
				time.Sleep(past)
				if err := tt.ask(s); err != nil {
					t.Fatal(err)
				}
				state := s.Stats().State
				if (state == layer.BreakerClosed) != (tt.want == layer.BreakerClosed) {
					t.Errorf("%v after such an answer to a trial", state)
				}
			})
		})
	}
}

// remembering answers from a cache: takes, peeks, and the first results of a TakeAll, of which the
// others are as from a server.
type remembering struct {
	*inside
	take, peek bool
	source     driver.Source // of takes and peeks, instead of SourceCache
	all        int
}

func (s *remembering) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if d.Op == driver.OpTake && s.take || d.Op == driver.OpPeek && s.peek {
		return driver.Result{Source: max(driver.SourceCache, s.source)}, nil
	}
	return s.inside.Take(ctx, d)
}

func (s *remembering) TakeAll(
	_ context.Context, _ []driver.Demand, out []driver.Result,
) error {
	for i := range out {
		out[i] = driver.Result{Limit: driver.Limit{Max: 7}}
		if i < s.all {
			out[i].Source = driver.SourceCache
		}
	}
	return nil
}

// TestBreakerNoFailure: errors that say nothing about the whole store neither open a breaker nor
// close it.
func TestBreakerNoFailure(t *testing.T) {
	for _, harmless := range []error{
		driver.ErrCorruptState, driver.ErrCapacity, driver.ErrContended, driver.ErrClosed,
		driver.ErrNoScript, driver.ErrExceedsLimit, errors.New("other"),
	} {
		t.Run(harmless.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.fails(t, 9, harmless)
				b.fails(t, 2, driver.ErrUnavailable)
				b.fails(t, 9, harmless)
				b.wantChanges(t)
				b.fails(t, 1, driver.ErrUnavailable)
				b.wantChanges(t, opens)
				time.Sleep(past)
				b.fails(t, 9, harmless)
				b.wantChanges(t, tries)
				b.answers(t, 1)
				b.wantChanges(t, closes)
			})
		})
	}
}

// TestBreakerContexts: a call whose context has ended, before it or during it, by cancellation or
// by its deadline, is not a failure.
func TestBreakerContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ended, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		before := func() {
			t.Helper()
			_, err := b.Take(ended, demand(driver.OpTake))
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, layer.ErrBreakerOpen) {
				t.Fatal(err)
			}
		}
		during := func(newContext func() (context.Context, context.CancelFunc), want error) {
			t.Helper()
			ctx, cancel := newContext()
			defer cancel()
			if _, err := b.Take(ctx, demand(driver.OpTake)); !errors.Is(err, want) {
				t.Fatalf("%v, want %v", err, want)
			}
		}
		canceled := func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			return ctx, cancel
		}
		expired := func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), time.Millisecond)
		}
		for range 9 {
			before()
		}
		synctest.Wait()
		if got := b.inside.asked.Load(); got != 0 {
			t.Errorf("%d calls or peeks, want none", got)
		}
		answers := b.inside.wait()
		for range 9 {
			during(canceled, context.Canceled)
			during(expired, context.DeadlineExceeded)
		}
		answers <- nil // to the peek
		synctest.Wait()
		b.wantChanges(t)
		if got := b.Stats(); got != (layer.BreakerStats{State: layer.BreakerClosed}) {
			t.Errorf("%+v, want none", got)
		}

		b.fails(t, 3, driver.ErrUnavailable)
		b.wantChanges(t, opens)
		before()
		time.Sleep(past)
		answers = b.inside.wait()
		during(expired, context.DeadlineExceeded) // the peek after it is let through in its place
		synctest.Wait()
		b.refuses(t)
		b.wantChanges(t, tries)
		answers <- driver.ErrUnavailable
		synctest.Wait()
		b.wantChanges(t, opensAgain)
		time.Sleep(past)
		answers = b.inside.wait()
		during(canceled, context.Canceled)
		answers <- nil
		synctest.Wait()
		b.wantChanges(t, tries, closes)
	})
}

// TestBreakerInvalidCalls: an invalid call gets the same error in every state.
func TestBreakerInvalidCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		check := func() {
			t.Helper()
			asked := b.inside.asked.Load()
			wrong := demand(driver.OpTake)
			wrong.N = 8
			if res, err := b.Take(t.Context(), wrong); err == nil ||
				err.Error() != driver.CheckTake(t.Context(), wrong).Error() ||
				res != (driver.Result{}) {
				t.Errorf("%+v, %v", res, err)
			}
			twice := []driver.Demand{demand(driver.OpTake), demand(driver.OpPeek)}
			if err := b.TakeAll(t.Context(), twice,
				make([]driver.Result, 2)); !errors.Is(err, driver.ErrInvalid) {
				t.Error(err)
			}
			if err := b.TakeAll(t.Context(), twice[:1],
				nil); !errors.Is(err, driver.ErrInvalid) {
				t.Error(err)
			}
			if b.inside.asked.Load() != asked {
				t.Error("the store inside was called")
			}
		}
		check()
		b.fails(t, 3, driver.ErrUnavailable)
		check()
		time.Sleep(past)
		check()
		b.wantChanges(t, opens)
	})
}

// TestBreakerUncheckedResults: the breaker does not panic on no demands, or on too few results, if
// the store inside does not check the lengths.
func TestBreakerUncheckedResults(t *testing.T) {
	for _, err := range []error{nil, driver.ErrUnavailable} {
		s, newErr := layer.NewBreaker(unchecked{err}, nil)
		if newErr != nil {
			t.Fatal(newErr)
		}
		ds := []driver.Demand{demand(driver.OpTake)}
		if got := s.TakeAll(t.Context(), ds, nil); !errors.Is(got, err) {
			t.Errorf("no results: %v, want %v", got, err)
		}
		if got := s.TakeAll(t.Context(), nil, nil); !errors.Is(got, driver.ErrInvalid) {
			t.Errorf("no demands: %v", got)
		}
	}
}

// unchecked is a store that answers everything with an error, or none.
type unchecked struct{ err error }

func (s unchecked) Take(context.Context, driver.Demand) (driver.Result, error) {
	return driver.Result{}, s.err
}

func (s unchecked) TakeAll(context.Context, []driver.Demand, []driver.Result) error {
	return s.err
}

// TestBreakerOneAtATime: while one demand is let through, others are refused. Calls that began
// before get their answers, and change nothing.
func TestBreakerOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		errs := make(chan error, 4)
		ask := func(n int) chan<- error {
			answers := b.inside.wait()
			for range n {
				go func() {
					_, err := b.Take(t.Context(), demand(driver.OpTake))
					errs <- err
				}()
			}
			synctest.Wait()
			return answers
		}
		late := func(answers chan<- error, answer error) {
			t.Helper()
			answers <- answer
			if err := <-errs; !errors.Is(err, answer) || errors.Is(err, layer.ErrBreakerOpen) {
				t.Errorf("%v, want %v from inside", err, answer)
			}
		}
		calm := ask(4)
		b.fails(t, 1, driver.ErrUnavailable)
		troubled := ask(4)
		b.fails(t, 2, driver.ErrUnavailable)
		for _, early := range []chan<- error{calm, troubled} {
			late(early, nil)
			late(early, driver.ErrOutcomeUnknown)
			b.refuses(t)
		}
		b.wantChanges(t, opens)
		time.Sleep(past)
		late(calm, driver.ErrOutcomeUnknown)
		b.wantChanges(t)

		let := ask(1)
		b.refuses(t)
		late(troubled, driver.ErrOutcomeUnknown)
		b.refuses(t)
		b.wantChanges(t, tries)
		late(let, nil)
		b.answers(t, 9)
		b.wantChanges(t, closes)

		b.fails(t, 2, driver.ErrUnavailable)
		late(troubled, nil)
		b.answers(t, 1)
		b.fails(t, 2, driver.ErrUnavailable)
		b.wantChanges(t)
		late(calm, nil)
	})
}

// TestPanic: a store inside that panics leaves a breaker that can be tried again.
func TestBreakerPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.fails(t, 3, driver.ErrUnavailable)
		time.Sleep(past)
		b.inside.fail(errPanic)
		func() {
			defer func() {
				if got := recover(); got != errPanic {
					t.Errorf("recovered %v", got)
				}
			}()
			_, _ = b.Take(t.Context(), demand(driver.OpTake))
		}()
		b.wantChanges(t, opens, tries, opensAgain)
		time.Sleep(past)
		b.answers(t, 1)
		b.wantChanges(t, tries, closes)
	})
}

// TestBreakerUnderPolicies: the policy of the limiter decides what an open breaker refuses.
func TestBreakerUnderPolicies(t *testing.T) {
	b := newBench(t)
	b.fails(t, 3, driver.ErrUnavailable)
	b.wantChanges(t, opens)
	for _, policy := range []ratelimit.Policy{ratelimit.FailClosed, ratelimit.FailOpen} {
		limiter, err := ratelimit.New(b, perMinute)
		if err != nil {
			t.Fatal(err)
		}
		res, err := limiter.WithPolicy(policy).Allow(t.Context(), "k")
		if open := policy == ratelimit.FailOpen; (err == nil) != open || res.Allowed != open ||
			!open && !errors.Is(err, layer.ErrBreakerOpen) {
			t.Errorf("%v: %+v, %v", policy, res, err)
		}
	}
}

// TestBreakerManyAtOnce calls from many goroutines while the state changes, and compares counts.
func TestBreakerManyAtOnce(t *testing.T) {
	const workers, rounds = 4, 50
	b := newBench(t)
	fast, err := layer.NewBreaker(b.inside,
		&layer.BreakerOptions{Failures: 3, Pause: 50 * time.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	var answered, failed, open atomic.Int64
	var wg sync.WaitGroup
	end := make(chan struct{})
	for range workers {
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				switch _, err := fast.Take(t.Context(), demand(driver.OpTake)); {
				case err == nil:
					answered.Add(1)
				case errors.Is(err, layer.ErrBreakerOpen):
					open.Add(1)
				default:
					failed.Add(1)
				}
			}
		})
	}
	for range rounds {
		b.inside.fail(driver.ErrUnavailable)
		for seen := fast.Stats().Opened; fast.Stats().Opened == seen; {
			time.Sleep(20 * time.Microsecond)
		}
		b.inside.fail(nil)
		for seen := answered.Load(); answered.Load() == seen; {
			time.Sleep(20 * time.Microsecond)
		}
	}
	close(end)
	wg.Wait()
	if asked := b.inside.asked.Load(); asked != answered.Load()+failed.Load() {
		t.Errorf("the store inside was called %d times, for %d answers and %d failures",
			asked, answered.Load(), failed.Load())
	}
	if got := fast.Stats(); got.Failures != failed.Load() || got.Refused != open.Load() ||
		got.Opened < rounds {
		t.Errorf("%+v, and callers counted %d failures and %d refusals",
			got, failed.Load(), open.Load())
	}
	// It still counts only failures in a row: two of them and an answer do not open it.
	for fast.Stats().State != layer.BreakerClosed {
		_, _ = fast.Take(t.Context(), demand(driver.OpTake))
		time.Sleep(50 * time.Microsecond)
	}
	opened := fast.Stats().Opened
	for i := range 9 {
		b.inside.fail(nil)
		if i%3 > 0 {
			b.inside.fail(driver.ErrUnavailable)
		}
		_, _ = fast.Take(t.Context(), demand(driver.OpTake))
	}
	if got := fast.Stats().Opened; got != opened {
		t.Error("two failures opened it")
	}
}

func TestBreakerOptions(t *testing.T) {
	for _, opts := range []*layer.BreakerOptions{{Failures: -1}, {Pause: -1}} {
		if _, err := layer.NewBreaker(&inside{}, opts); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
	if _, err := layer.NewBreaker(nil, nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no store: %v", err)
	}
	s, err := layer.NewBreaker(&inside{err: driver.ErrUnavailable}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range breakerFailures + 1 {
		_, err := s.Take(t.Context(), demand(driver.OpTake))
		if errors.Is(err, layer.ErrBreakerOpen) != (i == breakerFailures) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// opened returns a store that is open and stays so.
func opened(t testing.TB) *layer.Breaker {
	t.Helper()
	s, err := layer.NewBreaker(&inside{err: driver.ErrUnavailable},
		&layer.BreakerOptions{Failures: 1, Pause: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(t.Context(), demand(driver.OpTake)); err == nil ||
		s.Stats().State != layer.BreakerOpen {
		t.Fatalf("%v, and the breaker is %v", err, s.Stats().State)
	}
	return s
}

// TestBreakerAllocations: a breaker allocates nothing, open or closed, also after a failure.
func TestBreakerAllocations(t *testing.T) {
	after := newBench(t)
	after.fails(t, 2, driver.ErrUnavailable)
	after.answers(t, 1)
	for s, want := range map[*layer.Breaker]error{newBench(t).Breaker: nil, after.Breaker: nil,
		opened(t): layer.ErrBreakerOpen} {
		d := demand(driver.OpTake)
		ds, out := []driver.Demand{d}, make([]driver.Result, 1)
		got := testing.AllocsPerRun(1000, func() {
			if _, err := s.Take(t.Context(), d); !errors.Is(err, want) {
				t.Fatal(err)
			}
			if err := s.TakeAll(t.Context(), ds, out); !errors.Is(err, want) {
				t.Fatal(err)
			}
		})
		if got != 0 {
			t.Errorf("%v: %v allocations", s.Stats().State, got)
		}
	}
}

// BenchmarkBreaker measures what a breaker adds to the memory store, and what it costs while open.
func BenchmarkBreaker(b *testing.B) {
	memory, err := memorystore.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer memory.Close()
	closed, err := layer.NewBreaker(memory, nil)
	if err != nil {
		b.Fatal(err)
	}
	d := demand(driver.OpPeek)
	for _, bb := range []struct {
		name  string
		store driver.Store
	}{{"bare", memory}, {"closed", closed}, {"open", opened(b)}} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = bb.store.Take(b.Context(), d)
			}
		})
		b.Run(fmt.Sprint(bb.name, "/parallel"), func(b *testing.B) {
			ctx := b.Context()
			b.SetParallelism(64)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_, _ = bb.store.Take(ctx, d)
				}
			})
		})
	}
}
