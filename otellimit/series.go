package otellimit

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

const (
	// maxLimits is the number of limits that have attributes of their own.
	maxLimits = 20_000
	otherName = "_other"
)

type outcome uint8

const (
	admitted outcome = iota
	refused
	refusedByOther
	failed

	numOutcomes
)

var outcomeNames = [numOutcomes]string{"admitted", "refused", "refused_by_other", "error"}

const numSources = int(ratelimit.SourceLease) + 1

// An op is a driver.Op or a renewal.
type op uint8

const (
	renewal = op(driver.OpSettle) + 1
	numOps  = int(renewal) + 1
)

// opOf returns the op of an observation. A hold of no units renews, and no limit refuses that.
func opOf(o *ratelimit.Observation) op {
	if o.Op == driver.OpHold && o.N == 0 {
		return renewal
	}
	return op(o.Op)
}

func (o op) String() string {
	if o == renewal {
		return "renew"
	}
	return driver.Op(o).String()
}

// options are the attributes of a series in the forms that instruments take.
type options struct {
	attributes []attribute.KeyValue // for spans
	add        []metric.AddOption
	record     []metric.RecordOption
}

func newOptions(attributes []attribute.KeyValue, extra ...attribute.KeyValue) *options {
	set := metric.WithAttributeSet(attribute.NewSet(append(extra, attributes...)...))
	return &options{attributes, []metric.AddOption{set}, []metric.RecordOption{set}}
}

// A table has the options of each series of a limit, or of all limits. They are made on first use,
// so that later decisions allocate nothing.
type table [numOps][numOutcomes][numSources]atomic.Pointer[options]

// of returns the options of a decision. Those of all limits have no limit.
func (t *table) of(limit []attribute.KeyValue, op op, o outcome, source ratelimit.Source) *options {
	if o == failed {
		source = 0
	}
	p := &t[op][o][source]
	if made := p.Load(); made != nil {
		return made
	}
	attributes := append(slices.Clip(limit), outcomeKey.String(outcomeNames[o]))
	if o != failed {
		attributes = append(attributes, sourceKey.String(source.String()))
	}
	p.CompareAndSwap(nil, newOptions(attributes, opKey.String(op.String())))
	return p.Load()
}

// limitSeries has the attributes of the series of one limit.
type limitSeries struct {
	name    []attribute.KeyValue
	max     atomic.Int64
	window  atomic.Int64
	live    table
	units   [numOps][numOutcomes]atomic.Pointer[options]
	shadows atomic.Pointer[shadowTable] // nil until a shadow decides
	only    *options                    // the name alone
}

type shadowTable [numOps][numOutcomes][numOutcomes]atomic.Pointer[options]

func newLimitSeries(name string) *limitSeries {
	named := []attribute.KeyValue{limitKey.String(name)}
	return &limitSeries{name: named, only: newOptions(named)}
}

// see stores Max and Window of the limit.
func (s *limitSeries) see(l ratelimit.Limit) {
	if s.max.Load() != l.Max {
		s.max.Store(l.Max)
	}
	if s.window.Load() != int64(l.Window) {
		s.window.Store(int64(l.Window))
	}
}

func (s *limitSeries) seconds() float64 { return time.Duration(s.window.Load()).Seconds() }

func (s *limitSeries) decision(op op, o outcome, source ratelimit.Source) *options {
	return s.live.of(s.name, op, o, source)
}

// ofUnits is decision for units, which have no source.
func (s *limitSeries) ofUnits(op op, o outcome) *options {
	p := &s.units[op][o]
	if made := p.Load(); made != nil {
		return made
	}
	p.CompareAndSwap(nil, newOptions(append(slices.Clip(s.name), opKey.String(op.String()),
		outcomeKey.String(outcomeNames[o]))))
	return p.Load()
}

func (s *limitSeries) shadow(op op, o, live outcome) *options {
	t := s.shadows.Load()
	if t == nil {
		s.shadows.CompareAndSwap(nil, new(shadowTable))
		t = s.shadows.Load()
	}
	p := &t[op][o][live]
	if made := p.Load(); made != nil {
		return made
	}
	p.CompareAndSwap(nil, newOptions(append(slices.Clip(s.name), opKey.String(op.String()),
		outcomeKey.String(outcomeNames[o]), liveKey.String(outcomeNames[live]))))
	return p.Load()
}

// limits finds the series of a limit by its name. Reading one that is not new takes no lock.
type limits struct {
	byName atomic.Pointer[map[string]*limitSeries]

	mu     sync.Mutex
	known  map[string]*limitSeries // those of byName, and new ones
	misses int                     // how often one that is not in byName was looked for
}

// of returns the series of a limit, or the shared series if there are too many limits.
func (l *limits) of(limit ratelimit.Limit) *limitSeries {
	var s *limitSeries
	if published := l.byName.Load(); published != nil {
		s = (*published)[limit.Name]
	}
	if s == nil {
		s = l.find(limit.Name)
	}
	s.see(limit)
	return s
}

// find returns the series of a limit that is not published. A copy of all is published after as
// many misses as it has series, so that many new names cost no copy each.
func (l *limits) find(name string) *limitSeries {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = make(map[string]*limitSeries)
	}
	s := l.known[name]
	if s == nil {
		if len(l.known) >= maxLimits {
			name = otherName
		}
		if s = l.known[name]; s == nil {
			name = strings.Clone(name)
			s = newLimitSeries(name)
			l.known[name] = s
		}
	}
	if l.misses++; l.misses >= len(l.known) {
		l.publish()
	}
	return s
}

func (l *limits) publish() map[string]*limitSeries {
	all := maps.Clone(l.known)
	l.byName.Store(&all)
	l.misses = 0
	return all
}

// all returns the series of all limits.
func (l *limits) all() map[string]*limitSeries {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.misses == 0 && l.byName.Load() != nil {
		return *l.byName.Load()
	}
	return l.publish()
}
