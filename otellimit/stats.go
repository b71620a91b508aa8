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

// BreakerStats are the state and the statistics of a breaker of package
// [github.com/truewindow/ratelimit/layer/breaker]. They are a type of this package so that programs
// without a breaker do not get the library that it uses.
type BreakerStats struct {
	State    string // closed, half-open or open
	Opened   int64  // breaker.Stats.Opened
	Refused  int64  // breaker.Stats.Refused
	Failures int64  // breaker.Stats.Failures
}

var breakerStates = []string{"closed", "half-open", "open"}

// Watch shows the statistics that stats returns whenever metrics are collected, under a name for
// the store: memorystore.Stats, [serverstore.Stats], [layer.DegradedStats] or [BreakerStats]. The
// Stats method of a backend.Store returns one of them. Values of other types, such as nil, are
// ignored. A layer and the store inside it need a name each. An error wraps
// [ratelimit.ErrInvalidOptions] if the name is empty or taken, or stats is nil.
func (m *Metrics) Watch(name string, stats func() any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name == "" || stats == nil || m.watched[name] != nil {
		return fmt.Errorf("%w: Watch needs a name of its own for each store, and its statistics",
			ratelimit.ErrInvalidOptions)
	}
	m.watched[name] = stats
	return nil
}

// statsInstruments are the instruments that are read when metrics are collected, by name.
type statsInstruments struct {
	ints   map[string]metric.Int64Observable
	window metric.Float64ObservableGauge
}

// A statsMetric is a row of the table of the package's comment.
type statsMetric struct {
	name, unit, what string
	counter          bool
}

var statsMetrics = []statsMetric{
	{"ratelimit.limit.max", "{unit}", "Max of a limit that has decided.", false},
	{"ratelimit.store.keys", "{key}", "States that a store in memory holds.", false},
	{"ratelimit.store.keys.max", "{key}", "The most states that it may hold.", false},
	{"ratelimit.store.overflow.keys", "{key}", "Overflow states.", false},
	{"ratelimit.store.overflow.decisions", "{decision}",
		"Demands decided on an overflow state.", true},
	{"ratelimit.store.refusals", "{call}", "Calls that failed for want of room.", true},
	{"ratelimit.store.queued", "{call}", "Slots for calls that are not sent yet.", false},
	{"ratelimit.store.queued.max", "{call}", "The most slots for such calls.", false},
	{"ratelimit.store.abandoned", "{request}", "Requests that no caller waits for.", false},
	{"ratelimit.store.abandoned.max", "{request}",
		"The number of them from which on no request is sent.", false},
	{"ratelimit.cache.enabled", "{cache}", "1 if refusals are cached, else 0.", false},
	{"ratelimit.cache.entries", "{refusal}", "Cached refusals.", false},
	{"ratelimit.cache.size", "By", "Memory of the cached refusals, about.", false},
	{"ratelimit.cache.hits", "{refusal}", "Refusals that came from the cache.", true},
	{"ratelimit.cache.stored", "{refusal}", "Refusals that were cached.", true},
	{"ratelimit.cache.discarded", "{refusal}",
		"Refusals that changed before they were cached.", true},
	{"ratelimit.cache.invalidations", "{state}",
		"States that the server reported as changed.", true},
	{"ratelimit.cache.flushes", "{flush}", "Times when the cache was emptied.", true},
	{"ratelimit.local.active", "{store}", "1 while decisions are local, else 0.", false},
	{"ratelimit.local.decisions", "{call}", "Calls decided locally.", true},
	{"ratelimit.local.undecided", "{call}",
		"Calls that could not be decided locally either.", true},
	{"ratelimit.local.pending", "{state}", "States with units that are not recorded yet.", false},
	{"ratelimit.local.recorded", "{unit}", "Units recorded in the store later.", true},
	{"ratelimit.local.unconfirmed", "{unit}",
		"Units recorded later whose answer never came.", true},
	{"ratelimit.local.keys", "{key}", "States tracked locally.", false},
	{"ratelimit.local.untracked", "{admission}",
		"Admissions that found no room to be tracked.", true},
	{"ratelimit.breaker.state", "{breaker}", "1 for the state that a breaker has, else 0.", false},
	{"ratelimit.breaker.opened", "{change}", "Times when a breaker opened.", true},
	{"ratelimit.breaker.refusals", "{call}", "Calls that an open breaker refused.", true},
	{"ratelimit.breaker.failures", "{call}", "Calls that failed.", true},
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
		metric.WithUnit("s"), metric.WithDescription("Window of a limit that has decided."))
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
			continue // limits of different numbers
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
		c.int("ratelimit.store.overflow.keys", int64(s.Shared))
		c.int("ratelimit.store.overflow.decisions", s.Overflowed)
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
		c.int("ratelimit.local.keys", s.Keys)
		c.int("ratelimit.local.untracked", s.Untracked)
	case BreakerStats:
		for _, state := range breakerStates {
			c.bool("ratelimit.breaker.state", s.State == state, stateKey.String(state))
		}
		c.int("ratelimit.breaker.opened", s.Opened)
		c.int("ratelimit.breaker.refusals", s.Refused)
		c.int("ratelimit.breaker.failures", s.Failures)
	}
}
