package otellimit

import (
	"maps"
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
	maxLimits = 1000
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

const (
	numOps     = int(driver.OpSettle) + 1
	numSources = int(ratelimit.SourceOpen) + 1
)

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

// limitSeries has the attributes of the series of one limit. They are made on first use, so
// that later decisions allocate nothing.
type limitSeries struct {
	name    string
	max     atomic.Int64
	window  atomic.Int64
	live    [numOps][numOutcomes][numSources]atomic.Pointer[options]
	shadows [numOps][numOutcomes][numOutcomes]atomic.Pointer[options]
	only    *options // the name alone
}

func newLimitSeries(name string) *limitSeries {
	return &limitSeries{name: name, only: newOptions([]attribute.KeyValue{limitKey.String(name)})}
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

func (s *limitSeries) decision(op driver.Op, o outcome, source ratelimit.Source) *options {
	if o == failed {
		source = 0
	}
	p := &s.live[op][o][source]
	if made := p.Load(); made != nil {
		return made
	}
	attributes := []attribute.KeyValue{limitKey.String(s.name), outcomeKey.String(outcomeNames[o])}
	if o != failed {
		attributes = append(attributes, sourceKey.String(source.String()))
	}
	p.CompareAndSwap(nil, newOptions(attributes, opKey.String(op.String())))
	return p.Load()
}

func (s *limitSeries) shadow(op driver.Op, o, live outcome) *options {
	p := &s.shadows[op][o][live]
	if made := p.Load(); made != nil {
		return made
	}
	p.CompareAndSwap(nil, newOptions([]attribute.KeyValue{
		limitKey.String(s.name), opKey.String(op.String()),
		outcomeKey.String(outcomeNames[o]), liveKey.String(outcomeNames[live]),
	}))
	return p.Load()
}

// limits finds the series of a limit by its name. Reading takes no lock.
type limits struct {
	byName atomic.Pointer[map[string]*limitSeries]
	mu     sync.Mutex // of writers
}

func (l *limits) all() map[string]*limitSeries {
	if m := l.byName.Load(); m != nil {
		return *m
	}
	return nil
}

// of returns the series of a limit, or the shared series if there are too many limits.
func (l *limits) of(limit ratelimit.Limit) *limitSeries {
	known := l.all()
	s := known[limit.Name]
	if s == nil && len(known) >= maxLimits {
		s = known[otherName]
	}
	if s == nil {
		s = l.add(limit.Name)
	}
	s.see(limit)
	return s
}

func (l *limits) add(name string) *limitSeries {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.all()
	if len(known) >= maxLimits && known[name] == nil {
		name = otherName
	}
	if s := known[name]; s != nil {
		return s
	}
	next := make(map[string]*limitSeries, len(known)+1)
	maps.Copy(next, known)
	s := newLimitSeries(name)
	next[name] = s
	l.byName.Store(&next)
	return s
}
