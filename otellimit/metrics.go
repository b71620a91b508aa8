package otellimit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/shadow"
)

const scope = "github.com/truewindow/ratelimit/otellimit"

const (
	limitKey   = attribute.Key("ratelimit.limit")
	opKey      = attribute.Key("ratelimit.op")
	outcomeKey = attribute.Key("ratelimit.outcome")
	sourceKey  = attribute.Key("ratelimit.source")
	liveKey    = attribute.Key("ratelimit.live")
	storeKey   = attribute.Key("ratelimit.store")
	stateKey   = attribute.Key("ratelimit.state")
	errorKey   = attribute.Key("error.type")
)

// buckets are the bounds of the histograms, in seconds.
var buckets = []float64{
	.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10,
}

// Metrics records the decisions of limiters and the statistics of stores. It is safe for concurrent
// use. Create one with [New].
type Metrics struct {
	decisions, units, near, errors, shadows, dropped metric.Int64Counter
	renewed, late, lost                              metric.Int64Counter
	open                                             metric.Int64UpDownCounter
	duration, waited                                 metric.Float64Histogram

	limits   limits
	calls    table                       // of durations, which have no limit
	failures [numOps]map[string]*options // by the class of the error

	stats        *statsInstruments
	registration metric.Registration

	mu      sync.Mutex
	watched map[string]func() any
}

// New returns Metrics that record on a meter of provider. Errors are those of provider, and one
// that wraps [ratelimit.ErrInvalid] if provider is nil.
func New(provider metric.MeterProvider) (*Metrics, error) {
	if provider == nil {
		return nil, fmt.Errorf("%w options: no meter provider", ratelimit.ErrInvalid)
	}
	m := &Metrics{watched: make(map[string]func() any)}
	for i := range m.failures {
		m.failures[i] = make(map[string]*options)
		for _, class := range errorClasses() {
			m.failures[i][class] = newOptions([]attribute.KeyValue{
				opKey.String(op(i).String()), errorKey.String(class)})
		}
	}
	meter := provider.Meter(scope)
	var problems []error
	counter := func(name, unit, what string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		problems = append(problems, err)
		return c
	}
	histogram := func(name, what string) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"),
			metric.WithDescription(what), metric.WithExplicitBucketBoundaries(buckets...))
		problems = append(problems, err)
		return h
	}
	m.decisions = counter("ratelimit.decisions", "{decision}",
		"Decisions, one for each limit of a call.")
	m.units = counter("ratelimit.units", "{unit}", "Units requested, for each limit of a call.")
	m.near = counter("ratelimit.near_limit", "{decision}",
		"Takes and holds with at most 20 % left.")
	m.errors = counter("ratelimit.errors", "{error}", "Calls that failed.")
	m.shadows = counter("ratelimit.shadow.decisions", "{decision}",
		"Decisions of shadows, one for each limit of a call.")
	m.dropped = counter("ratelimit.shadow.dropped", "{decision}",
		"Decisions that shadows did not make: too many calls were in flight.")
	var err error
	m.open, err = meter.Int64UpDownCounter("ratelimit.holds.open", metric.WithUnit("{hold}"),
		metric.WithDescription("Holds that this process has to settle."))
	problems = append(problems, err)
	m.renewed = counter("ratelimit.holds.renewed", "{hold}", "Renewals of holds.")
	m.late = counter("ratelimit.holds.late", "{hold}",
		"Renewals and settlements of holds whose time-out was over.")
	m.lost = counter("ratelimit.holds.lost", "{hold}", "Open holds that were not settled.")
	m.duration = histogram("ratelimit.decision.duration", "How long calls took.")
	m.waited = histogram("ratelimit.decision.waited", "How long calls of Wait waited.")
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return m, m.registerStats(meter)
}

// Close stops the collection of statistics: those of [Metrics.Watch], and Max and Window of limits.
// Decisions are counted until the provider shuts down.
func (m *Metrics) Close() error { return m.registration.Unregister() }

// Observe records a call of a limiter and changes of holds, and sets attributes of the current
// span. Pass it to [ratelimit.Limiter.WithObserver].
func (m *Metrics) Observe(ctx context.Context, o ratelimit.Observation) {
	if o.Op > driver.OpSettle || len(o.Limits) == 0 {
		return
	}
	m.observeHolds(ctx, &o)
	if o.Open != nil && !o.Admitted {
		return // not a call
	}
	op, binding := opOf(&o), 0
	if o.Err == nil {
		binding = ratelimit.Binding(o.Results)
	}
	for i, limit := range o.Limits {
		series := m.limits.of(limit)
		res, outcome := o.Results[i], outcomeOf(&o, i)
		m.decisions.Add(ctx, 1, series.decision(op, outcome, sourceOf(res)).add...)
		if o.N > 0 {
			m.units.Add(ctx, o.N, series.ofUnits(op, outcome).add...)
		}
		takes := o.Op == driver.OpTake || o.Op == driver.OpHold
		if takes && o.N > 0 && o.Admitted && nearLimit(res) {
			m.near.Add(ctx, 1, series.only.add...)
		}
	}
	outcome, source := outcomeOf(&o, binding), sourceOf(o.Results[binding])
	called := m.calls.of(nil, op, outcome, source)
	m.duration.Record(ctx, o.Elapsed.Seconds(), called.record...)
	if o.Waited > 0 {
		m.waited.Record(ctx, o.Waited.Seconds(), called.record...)
	}
	if o.Err != nil {
		m.errors.Add(ctx, 1, m.failures[op][errorClass(ctx, o.Err)].add...)
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(
			m.limits.of(o.Limits[binding]).decision(op, outcome, source).attributes...)
	}
}

// observeHolds records what o says of holds.
func (m *Metrics) observeHolds(ctx context.Context, o *ratelimit.Observation) {
	for i, change := range o.Open {
		only := m.limits.of(o.Limits[i]).only.add
		switch {
		case change == 0:
			continue
		case errors.Is(o.Err, ratelimit.ErrNotHeld):
			m.lost.Add(ctx, 1, only...)
		case o.Err != nil:
			m.late.Add(ctx, 1, only...)
		}
		m.open.Add(ctx, int64(change), only...)
	}
	if o.Op == driver.OpHold && o.N == 0 {
		for i, limit := range o.Limits {
			if o.Results[i].Units > 0 {
				m.renewed.Add(ctx, 1, m.limits.of(limit).only.add...)
			}
		}
	}
}

// ObserveShadow records a decision of a shadow, only in ratelimit.shadow.*. Pass it to
// [shadow.New].
func (m *Metrics) ObserveShadow(ctx context.Context, o shadow.Observation) {
	if o.Op > driver.OpSettle {
		return
	}
	live := failed
	if o.Live != nil {
		live = refused
		if o.Live[ratelimit.Binding(o.Live)].Allowed {
			live = admitted
		}
	}
	for i, limit := range o.Limits {
		series := m.limits.of(limit)
		m.shadows.Add(ctx, 1,
			series.shadow(opOf(&o.Observation), outcomeOf(&o.Observation, i), live).add...)
		m.dropped.Add(ctx, o.Dropped, series.only.add...)
	}
}

// outcomeOf returns the outcome of a call for one of its limits.
func outcomeOf(o *ratelimit.Observation, i int) outcome {
	switch {
	case o.Err != nil:
		return failed
	case o.Op > driver.OpPeek && o.Op != driver.OpHold: // never refused
		return admitted
	case !o.Results[i].Allowed:
		return refused
	case !o.Admitted:
		return refusedByOther
	}
	return admitted
}

func sourceOf(res ratelimit.Result) ratelimit.Source {
	return min(res.Source, ratelimit.SourceLease)
}

// nearLimit reports whether at least 80 % of a limit are used.
func nearLimit(res ratelimit.Result) bool {
	return res.Source != ratelimit.SourceOpen && res.Remaining <= res.Limit.Max/5
}

// classes are the classes of errors. An error comes before those that it wraps.
var classes = []struct {
	err  error
	name string
}{
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, deadlineExceeded},
	{ratelimit.ErrQueueFull, "queue_full"},
	{ratelimit.ErrExceedsLimit, "exceeds_limit"},
	{ratelimit.ErrInvalid, "invalid"},
	{ratelimit.ErrOutcomeUnknown, "outcome_unknown"},
	{driver.ErrCapacity, "capacity"},
	{driver.ErrContended, "contended"},
	{driver.ErrCorruptState, "corrupt_state"},
	{driver.ErrClosed, "closed"},
	{serverstore.ErrDenied, "denied"},
	{ratelimit.ErrUnavailable, "unavailable"},
}

const (
	deadlineExceeded = "deadline_exceeded" // of the caller
	otherError       = "other"
)

func errorClasses() []string {
	names := []string{otherError}
	for _, c := range classes {
		names = append(names, c.name)
	}
	return names
}

// errorClass returns the class of the error of a call with ctx. An unknown outcome comes before the
// end of the context that has caused it. A timeout of the store is not the caller's deadline.
func errorClass(ctx context.Context, err error) string {
	if errors.Is(err, ratelimit.ErrOutcomeUnknown) {
		return "outcome_unknown"
	}
	ofStore := errors.Is(err, ratelimit.ErrUnavailable) && !passed(ctx)
	for _, c := range classes {
		if ofStore && c.name == deadlineExceeded {
			continue
		}
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	return otherError
}

// passed reports whether ctx has ended or its deadline has passed: a context ends a little after
// its deadline.
func passed(ctx context.Context) bool {
	at, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(at)
}
