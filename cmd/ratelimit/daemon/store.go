package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoy"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// onFailure is what the daemon does while the server is unavailable.
type onFailure string

const (
	failClosed onFailure = "closed"
	failOpen   onFailure = "open"
	failLocal  onFailure = "local"
)

func (f *onFailure) UnmarshalText(text []byte) error {
	*f = onFailure(text)
	switch *f {
	case "", failClosed, failOpen, failLocal:
		return nil
	}
	return fmt.Errorf("%q is not closed, open or local", text)
}

// policy returns the policy of the limiter. For local decisions it is FailClosed: the store makes
// them.
func (f onFailure) policy() ratelimit.Policy {
	if f == failOpen {
		return ratelimit.FailOpen
	}
	return ratelimit.FailClosed
}

var (
	errNoPolicy = errors.New("a store on a server or in a file needs --on-failure, which has no " +
		"default. While the store is unavailable, closed answers 503; open admits everything; " +
		"local, with --instances=N, lets each of N processes admit its share of the limit")
	errNoInstances = errors.New("--on-failure=local needs --instances=N, or instances in " +
		"the file: the number of processes that share the server, each of which admits one N-th " +
		"of every limit")
)

// errNoInstances returns the error, at its position if a file says local.
func (c *Serve) errNoInstances() error {
	if c.loaded == nil || c.loaded.File == nil {
		return errNoInstances
	}
	said := c.loaded.File.OnFailure
	if said.Value != string(failLocal) {
		return errNoInstances
	}
	return fmt.Errorf("%v: %w", said.At, errNoInstances)
}

// localInstances returns how many processes decide locally while the server is unavailable, or 0.
func (c *Serve) localInstances() int {
	if c.OnFailure == failLocal && mayFail(c.Store) {
		return c.Instances
	}
	return 0
}

// A guardedStore is the store of a service with the layers around it.
type guardedStore struct {
	*backend.Store                 // all layers included
	plain          driver.Store    // gets the keys of calls unhashed; nil if the store has them so
	breaker        *layer.Breaker  // nil for a store that does not fail
	leases         *leases         // nil if no limit can have one
	local          *layer.Degraded // nil without local decisions
	failing        since           // the breaker is not closed
	unavailable    since           // local decides
}

// A since is since when something is so, or zero.
type since struct{ at atomic.Int64 }

// is notes that it is so, or that it is not.
func (s *since) is(so bool) {
	if !so {
		s.at.Store(0)
	} else {
		s.at.CompareAndSwap(0, time.Now().Unix())
	}
}

// String returns " since " and the time, or "".
func (s *since) String() string {
	at := s.at.Load()
	if at == 0 {
		return ""
	}
	return " since " + time.Unix(at, 0).UTC().Format(time.RFC3339)
}

// openStore opens the store, with a breaker around one on a server, so that callers do not wait for
// a server that fails, leases around both, and with --on-failure=local a Degraded store around all.
// Calls over gRPC have less time than others, between breaker and leases. With a secret, all of
// these get hashes of keys.
func (c *Serve) openStore(ctx context.Context, log *slog.Logger) (*guardedStore, error) {
	s, err := backend.Open(ctx, c.storeURL())
	if err != nil {
		return nil, err
	}
	guarded, err := c.guard(s, log)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if c.secret != nil {
		guarded.plain = s.Store
		if s.Store, err = c.hashKeys(s.Store); err != nil {
			return nil, errors.Join(err, guarded.Close())
		}
	}
	return guarded, nil
}

func (c *Serve) guard(s *backend.Store, log *slog.Logger) (*guardedStore, error) {
	g := &guardedStore{Store: s}
	if !mayFail(c.Store) {
		return g, nil
	}
	var err error
	g.breaker, err = layer.NewBreaker(s.Store, &layer.BreakerOptions{
		Failures: c.BreakerFailures,
		Pause:    c.BreakerPause,
		OnChange: func(from, to layer.BreakerState) {
			g.failing.is(to != layer.BreakerClosed)
			logBreaker(log, from, to, g.breaker.Stats().LastFailure)
		},
	})
	if err != nil {
		return nil, err
	}
	s.Store = g.breaker
	if c.grpcTimeout > 0 {
		if s.Store, err = envoy.NewTimely(g.breaker, c.grpcTimeout); err != nil {
			return nil, err
		}
	}
	if c.Lease > 0 || c.loaded != nil { // a file can give limits leases at any time
		if g.leases, err = newLeases(s.Store, float64(c.Lease)); err != nil {
			return nil, err
		}
		s.Store = g.leases
	}
	if c.OnFailure != failLocal {
		return g, nil
	}
	g.local, err = layer.NewDegraded(s.Store, &layer.DegradedOptions{
		Instances: c.Instances,
		OnChange: func(unavailable bool) {
			g.unavailable.is(unavailable)
			logLocal(log, unavailable)
		},
	})
	if err != nil {
		return nil, err
	}
	c.warnOfNoShare(log)
	s.Store = g.local
	return g, nil
}

// Close closes the layers and the store.
func (g *guardedStore) Close() error {
	var err error
	if g.local != nil {
		err = g.local.Close()
	}
	if g.leases != nil {
		err = errors.Join(err, g.leases.Close())
	}
	return errors.Join(err, g.Store.Close())
}

// warnOfNoShare warns of limits of which each process admits nothing locally, because its share is
// rounded down to 0.
func (c *Serve) warnOfNoShare(log *slog.Logger) {
	all := slices.Clone(c.InFlight)
	for _, l := range c.Limit {
		all = append(all, l.WithName())
	}
	for _, l := range all {
		if int64(c.Instances) > l.Max {
			log.Warn("while the server is unavailable, every request for this limit gets 503: "+
				"--instances is more than its units, so no process has a share",
				"limit", config.WithName(l).Name, "max", l.Max, "instances", c.Instances)
		}
	}
}

// logBreaker logs that the breaker opened, after failure, or closed. The trials of an open breaker,
// one in each pause, are for debugging.
func logBreaker(log *slog.Logger, from, to layer.BreakerState, failure error) {
	switch {
	case from == layer.BreakerClosed:
		log.Warn("the breaker is open: the store fails and is not called",
			envoy.WithSetting(failure, "breaker", string(to), "error", failure)...)
	case to == layer.BreakerClosed:
		log.Info("the breaker is closed: the store answers again", "breaker", string(to))
	case from == layer.BreakerHalfOpen:
		log.Debug("the trial failed", "breaker", string(to), "error", failure)
	default:
		log.Debug("the breaker sends the store one demand as a trial", "breaker", string(to))
	}
}

func logLocal(log *slog.Logger, unavailable bool) {
	if unavailable {
		log.Warn("the store is unavailable: deciding locally")
	} else {
		log.Info("the store is available again: it decides")
	}
}
