package caddylimit

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/truewindow/ratelimit"
)

// decisions counts for the process, since each configuration has a registry of its own. Its name
// and labels are those of package otellimit, so that dashboards and alerts fit.
var decisions = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "ratelimit_decisions_total",
	Help: "Decisions of the directive limits, for each limit of a request.",
}, []string{"ratelimit_limit", "ratelimit_op", "ratelimit_outcome", "ratelimit_source"})

// register adds the metrics to the registry of a configuration, which several handlers share.
func register(registry *prometheus.Registry) error {
	err := registry.Register(decisions)
	if already := new(prometheus.AlreadyRegisteredError); errors.As(err, already) {
		return nil
	}
	return err
}

// outcomes are the outcomes of a decision for one limit.
var outcomes = [...]string{"admitted", "refused", "refused_by_other", "error"}

const (
	outcomeAdmitted = iota
	outcomeRefused
	outcomeRefusedByOther
	outcomeError
)

// counters has the counters of one limit by outcome and source. Each is made when it first counts,
// so that there is no series of what does not occur.
type counters [len(outcomes)][ratelimit.SourceLease + 1]func() prometheus.Counter

func newCounters(limit string, inFlight bool) *counters {
	op := "take"
	if inFlight {
		op = "hold"
	}
	c := new(counters)
	for outcome, name := range outcomes {
		for source := range c[outcome] {
			c[outcome][source] = sync.OnceValue(func() prometheus.Counter {
				return decisions.WithLabelValues(limit, op, name, ratelimit.Source(source).String())
			})
		}
	}
	return c
}

// decided counts the result of the limit for a request that all its limits admit, or not.
func (c *counters) decided(res *ratelimit.Result, admitted bool) {
	outcome := outcomeAdmitted
	switch {
	case !res.Allowed:
		outcome = outcomeRefused
	case !admitted:
		outcome = outcomeRefusedByOther
	}
	c[outcome][min(res.Source, ratelimit.SourceLease)]().Inc()
}

// failed counts a request that was not decided.
func (c *counters) failed() { c[outcomeError][ratelimit.SourceStore]().Inc() }
