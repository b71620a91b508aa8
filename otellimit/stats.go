package otellimit

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/layer"
)

var breakerStates = []layer.BreakerState{
	layer.BreakerClosed, layer.BreakerHalfOpen, layer.BreakerOpen,
}

// Watch adds the statistics of a store or a layer to the metrics, with name as ratelimit.store.
// Whenever metrics are collected, it calls stats, which returns [memorystore.Stats],
// [serverstore.Stats], [layer.DegradedStats], [layer.BreakerStats] or [layer.LeasedStats]; the
// Stats function of a backend.Store returns one of them. Values of other types, such as nil, are
// ignored. stats must be safe for concurrent use.
//
// A layer and the store inside it need different names. An error wraps
// [ratelimit.ErrInvalid] if the name is empty or taken, or stats is nil.
func (m *Metrics) Watch(name string, stats func() any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name == "" || stats == nil || m.watched[name] != nil {
		return fmt.Errorf("%w options: Watch needs a name that is not taken, and a function",
			ratelimit.ErrInvalid)
	}
	m.watched[name] = stats
	return nil
}

// statsInstruments are the instruments that are read when metrics are collected, by name.
type statsInstruments struct {
	ints   map[string]metric.Int64Observable
	window metric.Float64ObservableGauge
}

// A statsMetric is a row of the table in the package comment.
type statsMetric struct {
	name, unit, what string
	counter          bool
}

var statsMetrics = []statsMetric{
	{"ratelimit.limit.max", "{unit}", "Max of each limit that has decided.", false},
	{"ratelimit.store.keys", "{key}", "States in a memory store.", false},
	{"ratelimit.store.keys.max", "{key}", "The most states that a memory store may hold.", false},
	{"ratelimit.store.refusals", "{call}",
		"Calls that failed at once: the store or its queue was full.", true},
	{"ratelimit.store.queued", "{call}", "Queue slots for calls that are not sent yet.", false},
	{"ratelimit.store.queued.max", "{call}", "The most queue slots for such calls.", false},
	{"ratelimit.store.abandoned", "{request}", "Requests that no caller waits for.", false},
	{"ratelimit.store.abandoned.max", "{request}",
		"The number of them at which no more requests are sent.", false},
	{"ratelimit.cache.enabled", "{cache}", "1 if refusals are cached, else 0.", false},
	{"ratelimit.cache.entries", "{refusal}", "Cached refusals.", false},
	{"ratelimit.cache.size", "By", "Approximate memory of the cached refusals.", false},
	{"ratelimit.cache.hits", "{refusal}", "Refusals that the cache answered.", true},
	{"ratelimit.cache.stored", "{refusal}", "Refusals that were added to the cache.", true},
	{"ratelimit.cache.discarded", "{refusal}",
		"Refusals not cached because the state changed.", true},
	{"ratelimit.cache.invalidations", "{state}",
		"States that the server reported as changed.", true},
	{"ratelimit.cache.flushes", "{flush}", "Times that the cache was emptied.", true},
	{"ratelimit.local.active", "{store}",
		"1 while calls are decided locally, else 0.", false},
	{"ratelimit.local.decisions", "{call}", "Calls decided locally.", true},
	{"ratelimit.local.undecided", "{call}",
		"Calls that could not be decided locally.", true},
	{"ratelimit.local.pending", "{state}", "States with units not yet in the store.", false},
	{"ratelimit.local.recorded", "{unit}", "Local units that were recorded in the store.", true},
	{"ratelimit.local.unconfirmed", "{unit}",
		"Local units sent to the store, answer lost.", true},
	{"ratelimit.local.holds", "{hold}",
		"Holds of which the store does not know yet what was decided locally.", false},
	{"ratelimit.local.lost", "{hold}",
		"Holds that the store did not have any more when it was told.", true},
	{"ratelimit.local.keys", "{key}", "States tracked locally.", false},
	{"ratelimit.local.untracked", "{admission}",
		"Admissions not tracked for lack of room.", true},
	{"ratelimit.lease.keys", "{key}", "States that may have leases.", false},
	{"ratelimit.lease.admitted", "{call}", "Calls admitted from leases.", true},
	{"ratelimit.lease.refused", "{call}",
		"Calls refused because the store has refused as many units before.", true},
	{"ratelimit.lease.calls", "{call}", "Calls of the store about states with leases.", true},
	{"ratelimit.lease.units.taken", "{unit}", "Units taken ahead of their use.", true},
	{"ratelimit.lease.units.lost", "{unit}", "Units taken ahead and never used.", true},
	{"ratelimit.breaker.state", "{breaker}", "1 for the current state, 0 for the others.", false},
	{"ratelimit.breaker.opened", "{change}", "Times that a breaker opened.", true},
	{"ratelimit.breaker.refusals", "{call}", "Calls that an open breaker refused.", true},
	{"ratelimit.breaker.failures", "{call}",
		"Calls through a breaker, and its own peeks, that failed.", true},
}

func (m *Metrics) registerStats(meter metric.Meter) error {
	m.stats = &statsInstruments{ints: make(map[string]metric.Int64Observable)}
	var all []metric.Observable
	var problems []error
	for _, s := range statsMetrics {
		var instrument metric.Int64Observable
		var err error
		unit, what := metric.WithUnit(s.unit), metric.WithDescription(s.what)
		if s.counter {
			instrument, err = meter.Int64ObservableCounter(s.name, unit, what)
		} else {
			instrument, err = meter.Int64ObservableGauge(s.name, unit, what)
		}
		m.stats.ints[s.name] = instrument
		all, problems = append(all, instrument), append(problems, err)
	}
	window, err := meter.Float64ObservableGauge("ratelimit.limit.window",
		metric.WithUnit("s"), metric.WithDescription("Window of each limit that has decided."))
	m.stats.window = window
	if err := errors.Join(append(problems, err)...); err != nil {
		return err
	}
	m.registration, err = meter.RegisterCallback(m.collect, append(all, window)...)
	return err
}

// collect is called by the SDK.
func (m *Metrics) collect(_ context.Context, o metric.Observer) error {
	for name, s := range m.limits.all() {
		if name == otherName {
			continue // limits with different Max and Window
		}
		set := metric.WithAttributes(limitKey.String(name))
		o.ObserveInt64(m.stats.ints["ratelimit.limit.max"], s.max.Load(), set)
		o.ObserveFloat64(m.stats.window, s.seconds(), set)
	}
	m.mu.Lock()
	watched := maps.Clone(m.watched)
	m.mu.Unlock()
	for name, stats := range watched {
		c := collector{m.stats.ints, o, storeKey.String(name)}
		c.show(stats())
	}
	return nil
}

type collector struct {
	ints     map[string]metric.Int64Observable
	observer metric.Observer
	store    attribute.KeyValue
}

func (c collector) int(name string, n int64, more ...attribute.KeyValue) {
	c.observer.ObserveInt64(c.ints[name], n, metric.WithAttributes(append(more, c.store)...))
}

func (c collector) bool(name string, b bool, more ...attribute.KeyValue) {
	n := int64(0)
	if b {
		n = 1
	}
	c.int(name, n, more...)
}

func (c collector) show(stats any) {
	switch s := stats.(type) {
	case memorystore.Stats:
		c.int("ratelimit.store.keys", int64(s.Keys))
		c.int("ratelimit.store.keys.max", int64(s.MaxKeys))
		c.int("ratelimit.store.refusals", s.Refused)
	case serverstore.Stats:
		c.int("ratelimit.store.queued", int64(s.Queued))
		c.int("ratelimit.store.queued.max", int64(s.MaxQueued))
		c.int("ratelimit.store.abandoned", int64(s.Abandoned))
		c.int("ratelimit.store.abandoned.max", int64(s.MaxAbandoned))
		c.int("ratelimit.store.refusals", s.Refused)
		c.bool("ratelimit.cache.enabled", s.Cache.Enabled)
		c.int("ratelimit.cache.entries", s.Cache.Entries)
		c.int("ratelimit.cache.size", s.Cache.Bytes)
		c.int("ratelimit.cache.hits", s.Cache.Hits)
		c.int("ratelimit.cache.stored", s.Cache.Stored)
		c.int("ratelimit.cache.discarded", s.Cache.Discarded)
		c.int("ratelimit.cache.invalidations", s.Cache.Invalidations)
		c.int("ratelimit.cache.flushes", s.Cache.Flushes)
	case layer.DegradedStats:
		c.bool("ratelimit.local.active", s.Unavailable)
		c.int("ratelimit.local.decisions", s.Local)
		c.int("ratelimit.local.undecided", s.Undecided)
		c.int("ratelimit.local.pending", s.Pending)
		c.int("ratelimit.local.recorded", s.Recorded)
		c.int("ratelimit.local.unconfirmed", s.Unconfirmed)
		c.int("ratelimit.local.holds", s.Holds)
		c.int("ratelimit.local.lost", s.Lost)
		c.int("ratelimit.local.keys", s.Keys)
		c.int("ratelimit.local.untracked", s.Untracked)
	case layer.LeasedStats:
		c.int("ratelimit.lease.keys", s.Keys)
		c.int("ratelimit.lease.admitted", s.Admitted)
		c.int("ratelimit.lease.refused", s.Refused)
		c.int("ratelimit.lease.calls", s.Calls)
		c.int("ratelimit.lease.units.taken", s.Taken)
		c.int("ratelimit.lease.units.lost", s.Lost)
	case layer.BreakerStats:
		for _, state := range breakerStates {
			c.bool("ratelimit.breaker.state", s.State == state, stateKey.String(string(state)))
		}
		c.int("ratelimit.breaker.opened", s.Opened)
		c.int("ratelimit.breaker.refusals", s.Refused)
		c.int("ratelimit.breaker.failures", s.Failures)
	}
}
