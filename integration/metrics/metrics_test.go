package metrics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
	"github.com/truewindow/ratelimit/layer"
	"github.com/truewindow/ratelimit/otellimit"
	"github.com/truewindow/ratelimit/shadow"
)

// secret is a key that must not be in any metric.
const secret = "secret-key"

// read is what a reader has collected: numbers by "name{attribute=value,…}", sorted by attribute.
// A histogram is its count.
type read map[string]float64

func newTest(
	t testing.TB, options ...sdkmetric.Option,
) (*otellimit.Metrics, func() read) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	m, err := otellimit.New(
		sdkmetric.NewMeterProvider(append(options, sdkmetric.WithReader(reader))...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m, func() read {
		t.Helper()
		var data metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &data); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(fmt.Sprintf("%+v", data), secret) {
			t.Error("a metric has the key")
		}
		return flatten(data)
	}
}

func flatten(data metricdata.ResourceMetrics) read {
	all := make(read)
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			put := func(set attribute.Set, n float64) {
				var labels []string
				for _, kv := range set.ToSlice() {
					labels = append(labels, strings.TrimPrefix(string(kv.Key), "ratelimit.")+"="+
						kv.Value.String())
				}
				all[m.Name+"{"+strings.Join(labels, ",")+"}"] = n
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					put(p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					put(p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					put(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					put(p.Attributes, float64(p.Count))
				}
			}
		}
	}
	return all
}

// sum adds up what begins with name and has all parts.
func (r read) sum(name string, parts ...string) int {
	n := 0.0
next:
	for key, value := range r {
		if !strings.HasPrefix(key, name+"{") {
			continue
		}
		for _, part := range parts {
			if !strings.Contains(key, part) {
				continue next
			}
		}
		n += value
	}
	return int(n)
}

func newStore(t testing.TB) *memorystore.Store {
	t.Helper()
	store, err := memorystore.New(&memorystore.Options{Now: func() int64 { return 1e15 }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func newLimiter(
	t testing.TB, store ratelimit.Store, limits ...ratelimit.Limit,
) *ratelimit.Limiter {
	t.Helper()
	algorithms := make([]ratelimit.Algorithm, len(limits))
	for i, l := range limits {
		algorithms[i] = algorithm.SlidingLog(l)
	}
	limiter, err := ratelimit.New(store, algorithms...)
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

// failing is a store that returns the same result and error for all demands.
type failing struct {
	res ratelimit.Result
	err error
}

func (f failing) Take(ctx context.Context, _ driver.Demand) (ratelimit.Result, error) {
	if err := ctx.Err(); err != nil {
		return ratelimit.Result{}, fmt.Errorf("%w: %w", ratelimit.ErrUnavailable, err)
	}
	return f.res, f.err
}

func (f failing) TakeAll(context.Context, []driver.Demand, []ratelimit.Result) error {
	return f.err
}

// TestCountsAreWhatCallersGot compares the metrics of many concurrent calls with their answers.
func TestCountsAreWhatCallersGot(t *testing.T) {
	m, collect := newTest(t)
	limiter := newLimiter(t, newStore(t), ratelimit.PerMinute("minute", 70),
		ratelimit.PerHour("hour", 50)).WithObserver(m.Observe)
	var mu sync.Mutex
	var admittedCalls, refusedCalls, errorsGot int
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 100 {
				ctx, key, n := t.Context(), secret, int64(1)
				switch {
				case j%10 == 0:
					n = 51 // above the limit
				case i == 0 && j%2 == 0:
					key = ""
				}
				res, err := limiter.AllowN(ctx, key, n)
				mu.Lock()
				switch {
				case err != nil:
					errorsGot++
				case res.Allowed:
					admittedCalls++
				default:
					refusedCalls++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	got := collect()
	if admittedCalls != 50 {
		t.Errorf("%d admitted", admittedCalls)
	}
	for _, tt := range []struct {
		name  string
		parts []string
		want  int
	}{
		{"ratelimit.decision.duration", []string{"outcome=admitted"}, admittedCalls},
		{"ratelimit.decision.duration", []string{"outcome=refused"}, refusedCalls},
		{"ratelimit.decision.duration", []string{"outcome=error"}, errorsGot},
		{"ratelimit.decisions", []string{"limit=hour", "outcome=admitted", "source=store"},
			admittedCalls},
		{"ratelimit.decisions", []string{"limit=minute", "outcome=admitted"}, admittedCalls},
		{"ratelimit.decisions", []string{"limit=hour", "outcome=refused"}, refusedCalls},
		{"ratelimit.decisions", []string{"limit=minute", "outcome=refused_by_other"},
			refusedCalls},
		{"ratelimit.decisions", []string{"outcome=error"}, 2 * errorsGot},
		{"ratelimit.errors", nil, errorsGot},
		{"ratelimit.errors", []string{"error.type=exceeds_limit"}, 80},
		{"ratelimit.units", []string{"limit=hour", "outcome=admitted"}, admittedCalls},
		{"ratelimit.near_limit", []string{"limit=hour"}, 11}, // 10 to 0 remain
		{"ratelimit.limit.max", []string{"limit=hour"}, 50},
		{"ratelimit.limit.window", []string{"limit=hour"}, 3600},
	} {
		if n := got.sum(tt.name, tt.parts...); n != tt.want {
			t.Errorf("%s %v: %d, want %d", tt.name, tt.parts, n, tt.want)
		}
	}
}

func TestSourcesAndErrors(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	passed, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	cached := ratelimit.Result{Source: ratelimit.SourceCache, Limit: driver.Limit{Max: 5},
		RetryAfter: time.Second}
	local := ratelimit.Result{Allowed: true, Source: ratelimit.SourceLocal,
		Limit: driver.Limit{Max: 5}, Remaining: 4}
	for _, tt := range []struct {
		name   string
		store  failing
		policy ratelimit.Policy
		ctx    context.Context
		source string
		class  string
	}{
		{"cache", failing{res: cached}, ratelimit.FailClosed, t.Context(),
			"outcome=refused,source=cache", ""},
		{"local", failing{res: local}, ratelimit.FailClosed, t.Context(),
			"outcome=admitted,source=local", ""},
		{"open", failing{err: ratelimit.ErrUnavailable}, ratelimit.FailOpen, t.Context(),
			"outcome=admitted,source=open", ""},
		{"closed", failing{err: ratelimit.ErrUnavailable}, ratelimit.FailClosed, t.Context(),
			"outcome=error", "unavailable"},
		{"wait", failing{err: ratelimit.ErrUnavailable}, ratelimit.FailWait, t.Context(),
			"outcome=error", "unavailable"},
		{"unknown", failing{err: fmt.Errorf("%w: %w", ratelimit.ErrOutcomeUnknown,
			context.DeadlineExceeded)}, ratelimit.FailClosed, t.Context(),
			"outcome=error", "outcome_unknown"},
		{"timeout of the store", failing{err: fmt.Errorf("%w: %w", ratelimit.ErrUnavailable,
			context.DeadlineExceeded)}, ratelimit.FailClosed, t.Context(),
			"outcome=error", "unavailable"},
		{"deadline of the caller", failing{err: fmt.Errorf("%w: %w", ratelimit.ErrUnavailable,
			context.DeadlineExceeded)}, ratelimit.FailClosed, passed,
			"outcome=error", "deadline_exceeded"},
		{"capacity", failing{err: driver.ErrCapacity}, ratelimit.FailClosed, t.Context(),
			"outcome=error", "capacity"},
		{"contended", failing{err: fmt.Errorf("%w: %w", driver.ErrContended,
			context.DeadlineExceeded)}, ratelimit.FailOpen, t.Context(),
			"outcome=error", "contended"},
		{"corrupt", failing{err: driver.ErrCorruptState}, ratelimit.FailOpen, t.Context(),
			"outcome=error", "corrupt_state"},
		{"denied", failing{err: fmt.Errorf("%w: %w", ratelimit.ErrUnavailable,
			serverstore.ErrDenied)}, ratelimit.FailClosed, t.Context(),
			"outcome=error", "denied"},
		{"ended", failing{}, ratelimit.FailOpen, ended, "outcome=error", "canceled"},
		{"other", failing{err: errors.New("other")}, ratelimit.FailOpen, t.Context(),
			"outcome=error", "other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, collect := newTest(t)
			limiter := newLimiter(t, tt.store, ratelimit.PerMinute("a", 5)).
				WithPolicy(tt.policy).WithObserver(m.Observe)
			_, err := limiter.Allow(tt.ctx, secret)
			if (err != nil) != (tt.class != "") {
				t.Fatal(err)
			}
			got := collect()
			if n := got.sum("ratelimit.decisions", "limit=a,op=take,"+tt.source); n != 1 {
				t.Errorf("decisions: %v", got)
			}
			if n := got.sum("ratelimit.near_limit") + got.sum("ratelimit.decision.waited"); n != 0 {
				t.Errorf("near its limit, or waited: %v", got)
			}
			failures := got.sum("ratelimit.errors")
			if tt.class == "" && failures != 0 || tt.class != "" &&
				got.sum("ratelimit.errors", "error.type="+tt.class+",op=take") != 1 {
				t.Errorf("errors: %v", got)
			}
		})
	}
}

func TestShadow(t *testing.T) {
	m, collect := newTest(t)
	var wg sync.WaitGroup
	limiter := newLimiter(t, newStore(t), ratelimit.PerMinute("old", 2))
	repeat, err := shadow.New(limiter, newLimiter(t, newStore(t), ratelimit.PerMinute("new", 1)),
		func(ctx context.Context, o shadow.Observation) {
			defer wg.Done()
			o.Dropped = 2
			m.ObserveShadow(ctx, o)
		})
	if err != nil {
		t.Fatal(err)
	}
	limiter = limiter.WithObserver(func(ctx context.Context, o ratelimit.Observation) {
		m.Observe(ctx, o)
		repeat(ctx, o)
	})
	for range 3 {
		wg.Add(1)
		if _, err := limiter.Allow(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	}
	got := collect()
	for part, want := range map[string]int{
		"live=admitted,op=take,outcome=admitted": 1,
		"live=admitted,op=take,outcome=refused":  1,
		"live=refused,op=take,outcome=refused":   1,
	} {
		if n := got.sum("ratelimit.shadow.decisions", part); n != want {
			t.Errorf("%s: %d, want %d: %v", part, n, want, got)
		}
	}
	if n := got.sum("ratelimit.decisions"); n != 3 {
		t.Errorf("%d decisions of the limiter", n)
	}
	if n := got.sum("ratelimit.shadow.dropped", "limit=new"); n != 6 {
		t.Errorf("%d dropped, want 6", n)
	}
}

// TestOperations: a reservation counts as the operations that it makes.
func TestOperations(t *testing.T) {
	m, collect := newTest(t)
	limiter := limittest.NewBudget(t, newStore(t), ratelimit.PerMinute("a", 5)).
		WithObserver(m.Observe)
	reservation, err := limiter.Reserve(t.Context(), secret, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		reservation.Renew(t.Context(), 0), reservation.Renew(t.Context(), 0),
		reservation.Commit(t.Context(), 1),
		limiter.Reset(t.Context(), secret),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	_, _ = limiter.Peek(t.Context(), secret)
	_, _ = limiter.Force(t.Context(), secret, 9)
	got := collect()
	for op, want := range map[string]int{
		"take": 0, "hold": 1, "renew": 2, "settle": 1, "reset": 1, "peek": 1, "force": 1,
	} {
		if n := got.sum("ratelimit.decisions", "op="+op+",outcome=admitted"); n != want {
			t.Errorf("%s: %d, want %d: %v", op, n, want, got)
		}
	}
}

// TestDurationsHaveNoLimit: many limits add no histograms, which have many series each, and the
// units of a limit have no source.
func TestDurationsHaveNoLimit(t *testing.T) {
	m, collect := newTest(t)
	store := newStore(t)
	for i := range 20 {
		limiter := newLimiter(t, store, ratelimit.PerMinute(fmt.Sprint("limit", i), 1)).
			WithObserver(m.Observe)
		for range 2 {
			if _, err := limiter.Allow(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}
	}
	var durations []string
	for series := range collect() {
		if strings.HasPrefix(series, "ratelimit.decision.duration{") {
			durations = append(durations, series)
		}
		if strings.HasPrefix(series, "ratelimit.units{") && strings.Contains(series, "source=") {
			t.Errorf("%s has a source", series)
		}
	}
	slices.Sort(durations)
	want := []string{"ratelimit.decision.duration{op=take,outcome=admitted,source=store}",
		"ratelimit.decision.duration{op=take,outcome=refused,source=store}"}
	if !slices.Equal(durations, want) {
		t.Errorf("%q, want %q", durations, want)
	}
}

// TestHolds: each change of a hold is counted under its limit, and in the end none is open,
// whatever ends the reservations. What no call of the store has done is no decision.
func TestHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, collect := newTest(t)
		inner, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		store := &away{Store: inner}
		tokens := limittest.NewBudget(t, store, ratelimit.PerHour("tokens", 1000)).
			WithObserver(m.Observe)
		// A limit without holds beside one that has them.
		calls, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerHour("day", 1000)),
			algorithm.InFlight("calls", 1000))
		if err != nil {
			t.Fatal(err)
		}
		calls = calls.WithObserver(m.Observe)
		reserve := func() *ratelimit.Reservation {
			t.Helper()
			r, err := ratelimit.ReserveAll(t.Context(),
				ratelimit.Claim{Limiter: tokens, Key: secret, N: 1},
				ratelimit.Claim{Limiter: calls, Key: secret, N: 1})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		is := func(err, want error) {
			t.Helper()
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		settles := 0
		for _, tt := range []struct {
			name       string
			end        func(*ratelimit.Reservation)
			late, lost int // of each limit
			settles    int // calls of the store for each limit
			renewed    int // holds of each limit
		}{
			{"commit",
				func(r *ratelimit.Reservation) { is(r.Commit(t.Context()), nil) }, 0, 0, 1, 0},
			{"cancel",
				func(r *ratelimit.Reservation) { is(r.Cancel(t.Context()), nil) }, 0, 0, 1, 0},
			{"commit after a renewal", func(r *ratelimit.Reservation) {
				is(r.Renew(t.Context(), 0), nil)
				is(r.Commit(t.Context()), nil)
			}, 0, 0, 1, 1},
			{"token", func(r *ratelimit.Reservation) {
				_, err := r.Token()
				is(err, nil)
			}, 0, 0, 0, 0},
			{"settled by its token", func(r *ratelimit.Reservation) {
				text, err := r.Token()
				is(err, nil)
				r, err = ratelimit.Resume(text, tokens, calls)
				is(err, nil)
				is(r.Commit(t.Context()), nil)
			}, 0, 0, 1, 0},
			{"renewed by its token", func(r *ratelimit.Reservation) {
				text, err := r.Token()
				is(err, nil)
				r, err = ratelimit.Resume(text, tokens, calls)
				is(err, nil)
				is(r.Renew(t.Context(), 0), nil)
				is(r.Commit(t.Context()), nil)
			}, 0, 0, 1, 1},
			{"reset", func(r *ratelimit.Reservation) {
				is(tokens.Reset(t.Context(), secret), nil)
				is(calls.Reset(t.Context(), secret), nil)
				is(r.Renew(t.Context(), 0), ratelimit.ErrNotHeld)
				is(r.Commit(t.Context()), ratelimit.ErrNotHeld)
			}, 0, 1, 1, 0},
			{"late", func(r *ratelimit.Reservation) {
				store.err.Store(&outage)
				time.Sleep(2 * time.Minute)
				store.err.Store(nil)
				is(r.Commit(t.Context()), nil)
			}, 1, 0, 1, 0},
			{"late renewal", func(r *ratelimit.Reservation) {
				store.err.Store(&outage)
				time.Sleep(2 * time.Minute)
				store.err.Store(nil)
				time.Sleep(2 * time.Second)
				is(r.Commit(t.Context()), nil)
			}, 1, 0, 1, 1},
			{"repeated cancel", func(r *ratelimit.Reservation) {
				store.err.Store(&outage)
				is(r.Cancel(t.Context()), ratelimit.ErrUnavailable)
				store.err.Store(nil)
				time.Sleep(2 * time.Second)
			}, 0, 0, 1, 0},
			{"given up", func(r *ratelimit.Reservation) {
				store.err.Store(&outage)
				is(r.Cancel(t.Context()), ratelimit.ErrUnavailable)
				time.Sleep(2 * time.Minute)
				store.err.Store(nil)
			}, 0, 1, 0, 0},
			{"dropped", func(*ratelimit.Reservation) {
				for range 3 {
					runtime.GC()
				}
				time.Sleep(30 * time.Second)
			}, 0, 1, 0, 0},
			{"closed", func(r *ratelimit.Reservation) {
				if err := inner.Close(); err != nil {
					t.Error(err)
				}
				time.Sleep(30 * time.Second)
				is(r.Commit(t.Context()), driver.ErrClosed)
			}, 0, 1, 0, 0},
		} {
			r := reserve()
			before := collect()
			for _, limit := range []string{"tokens", "calls"} {
				if n := before.sum("ratelimit.holds.open", "limit="+limit); n != 1 {
					t.Errorf("%s: %d holds of %s are open at first, want 1", tt.name, n, limit)
				}
			}
			tt.end(r)
			synctest.Wait()
			after := collect()
			settles += tt.settles
			for _, limit := range []string{"tokens", "calls"} {
				holds := func(metric string) int {
					name := "ratelimit.holds." + metric
					return after.sum(name, "limit="+limit) - before.sum(name, "limit="+limit)
				}
				got := [4]int{after.sum("ratelimit.holds.open", "limit="+limit), holds("late"),
					holds("lost"), holds("renewed")}
				if want := [4]int{0, tt.late, tt.lost, tt.renewed}; got != want {
					t.Errorf("%s: %v open, late, lost and renewed of %s, want %v", tt.name, got,
						limit, want)
				}
				if n := after.sum("ratelimit.decisions", "limit="+limit, "op=settle",
					"outcome=admitted"); n != settles {
					t.Errorf("%s: %d settlements of %s, want %d", tt.name, n, limit, settles)
				}
			}
			if n := after.sum("ratelimit.holds.open"); n != 0 {
				t.Errorf("%s: %d holds are open under other limits", tt.name, n)
			}
		}
	})
}

var outage = ratelimit.ErrUnavailable

// away is a store that fails while err is set.
type away struct {
	driver.Store
	err atomic.Pointer[error]
}

func (s *away) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if err := s.err.Load(); err != nil {
		return driver.Result{}, *err
	}
	return s.Store.Take(ctx, d)
}

func (s *away) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	if err := s.err.Load(); err != nil {
		return *err
	}
	return s.Store.TakeAll(ctx, ds, out)
}

func TestLimitNamesAreBounded(t *testing.T) {
	const maxLimits = 20_000 // as the package's comment says
	m, collect := newTest(t, sdkmetric.WithCardinalityLimit(0))
	for i := range maxLimits + 10 {
		o := ratelimit.Observation{Limits: []ratelimit.Limit{{
			Name: fmt.Sprint("plan", i), Max: 1, Window: time.Second}},
			Results: []ratelimit.Result{{Allowed: true}}, Admitted: true}
		m.Observe(t.Context(), o)
	}
	got := collect()
	if n := got.sum("ratelimit.decisions"); n != maxLimits+10 {
		t.Errorf("%d decisions", n)
	}
	if n := got.sum("ratelimit.decisions", "limit=_other,"); n != 10 {
		t.Errorf("%d decisions of other limits", n)
	}
	if n := got.sum("ratelimit.limit.max"); n != maxLimits {
		t.Errorf("%d limits", n)
	}
}

func TestWatch(t *testing.T) {
	m, collect := newTest(t)
	for name, stats := range map[string]any{
		"memory": memorystore.Stats{Keys: 1, MaxKeys: 2, Refused: 4},
		"server": serverstore.Stats{Queued: 6, Cache: serverstore.CacheStats{Enabled: true,
			Hits: 7}},
		"degraded": layer.DegradedStats{Unavailable: true, Local: 8},
		"breaker":  layer.BreakerStats{State: layer.BreakerOpen, Opened: 9},
		"leased":   layer.LeasedStats{Keys: 10, Taken: 11},
		"none":     nil,
	} {
		if err := m.Watch(name, func() any { return stats }); err != nil {
			t.Error(err)
		}
	}
	got := collect()
	for name, want := range map[string]float64{
		"ratelimit.store.keys{store=memory}":                  1,
		"ratelimit.store.keys.max{store=memory}":              2,
		"ratelimit.store.refusals{store=memory}":              4,
		"ratelimit.store.queued{store=server}":                6,
		"ratelimit.cache.hits{store=server}":                  7,
		"ratelimit.cache.enabled{store=server}":               1,
		"ratelimit.local.active{store=degraded}":              1,
		"ratelimit.local.decisions{store=degraded}":           8,
		"ratelimit.breaker.state{state=open,store=breaker}":   1,
		"ratelimit.breaker.state{state=closed,store=breaker}": 0,
		"ratelimit.breaker.opened{store=breaker}":             9,
		"ratelimit.lease.keys{store=leased}":                  10,
		"ratelimit.lease.units.taken{store=leased}":           11,
	} {
		if n, ok := got[name]; !ok || n != want {
			t.Errorf("%s: %v, want %v", name, n, want)
		}
	}
	for _, name := range []string{"", "memory"} {
		if err := m.Watch(name, func() any { return nil }); !errors.Is(err,
			ratelimit.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := otellimit.New(nil); !errors.Is(err, ratelimit.ErrInvalid) {
		t.Error(err)
	}
}

// recording is a span that keeps its attributes.
type recording struct {
	trace.Span
	attributes []attribute.KeyValue
}

func (*recording) IsRecording() bool { return true }

func (r *recording) SetAttributes(kv ...attribute.KeyValue) {
	r.attributes = append(r.attributes, kv...)
}

func TestSpan(t *testing.T) {
	m, _ := newTest(t)
	limiter := newLimiter(t, newStore(t), ratelimit.PerMinute("a", 1)).WithObserver(m.Observe)
	span := &recording{Span: trace.SpanFromContext(t.Context())}
	ctx := trace.ContextWithSpan(t.Context(), span)
	if _, err := limiter.Allow(ctx, secret); err != nil {
		t.Fatal(err)
	}
	want := []attribute.KeyValue{
		attribute.String("ratelimit.limit", "a"), attribute.String("ratelimit.outcome", "admitted"),
		attribute.String("ratelimit.source", "store"),
	}
	if fmt.Sprint(span.attributes) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", span.attributes, want)
	}
}

// TestTable compares the names and units in the package's comment with those that are collected.
func TestTable(t *testing.T) {
	page, err := os.ReadFile("../../otellimit/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]string)
	row := regexp.MustCompile(`(?m)^//\t(ratelimit\.\S+)\s{2,}(\{\w+\}|s|By)\s`)
	for _, match := range row.FindAllStringSubmatch(string(page), -1) {
		want[match[1]] = match[2]
	}
	reader := sdkmetric.NewManualReader()
	m, err := otellimit.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	everything(t, m)
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, m := range data.ScopeMetrics[0].Metrics {
		got[m.Name] = m.Unit
	}
	if !maps.Equal(got, want) {
		t.Errorf("collected:\n%v\nwant:\n%v", got, want)
	}
}

// everything gives each metric a value.
func everything(t *testing.T, m *otellimit.Metrics) {
	t.Helper()
	o := ratelimit.Observation{N: 1, Limits: []ratelimit.Limit{ratelimit.PerMinute("a", 5)},
		Results: []ratelimit.Result{{Allowed: true, Limit: driver.Limit{Max: 5}}}, Waited: 1,
		Admitted: true}
	m.Observe(t.Context(), o)
	m.ObserveShadow(t.Context(), shadow.Observation{Observation: o})
	hold := ratelimit.Observation{Op: driver.OpHold, Limits: o.Limits,
		Results: []ratelimit.Result{{Allowed: true, Units: 1}}, Admitted: true, Open: []int{1}}
	m.Observe(t.Context(), hold)
	for _, err := range []error{ratelimit.ErrNotHeld, context.DeadlineExceeded} {
		m.Observe(t.Context(), ratelimit.Observation{Op: driver.OpSettle, Limits: o.Limits,
			Results: make([]ratelimit.Result, 1), Err: err, Open: []int{-1}})
	}
	o.Err = ratelimit.ErrUnavailable
	m.Observe(t.Context(), o)
	for i, stats := range []any{memorystore.Stats{}, serverstore.Stats{}, layer.DegradedStats{},
		layer.BreakerStats{}, layer.LeasedStats{}} {
		if err := m.Watch(fmt.Sprint(i), func() any { return stats }); err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	m, _ := newTest(b)
	o := ratelimit.Observation{Limits: []ratelimit.Limit{ratelimit.PerMinute("a", 5)}, N: 1,
		Results:  []ratelimit.Result{{Allowed: true, Limit: driver.Limit{Max: 5}, Remaining: 4}},
		Admitted: true, Elapsed: time.Microsecond}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		m.Observe(ctx, o)
	}
}
