package main

import (
	"errors"
	"log/slog"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/layer"
	"github.com/truewindow/ratelimit/layer/breaker"
)

// policyFlag is a policy in the form that ratelimit.ParsePolicy reads, or none.
type policyFlag struct{ ratelimit.Policy }

func (f *policyFlag) UnmarshalText(text []byte) (err error) {
	f.Policy = 0
	if len(text) > 0 {
		f.Policy, err = ratelimit.ParsePolicy(string(text))
	}
	return err
}

var (
	errNoPolicy = errors.New("a server can be away, and what then becomes of demands has no default: --on-failure=closed answers 503, where passing the limit " +
		"costs more than being away; --on-failure=open admits all, where being away costs more; --on-failure=local --instances=N admits for each of N processes its " +
		"part of the limit")
	errNoInstances = errors.New("--on-failure=local needs --instances=N, the number of processes that share the server: each admits one part in N of the limit")
)

// guard puts around the store on a server what spares callers to wait while that is away, and what then decides.
func (c *serveCmd) guard(s *daemonStore, log *slog.Logger) error {
	guarded, err := breaker.New(s.Store, &breaker.Options{
		Failures: c.BreakerFailures,
		Pause:    c.BreakerPause,
		OnChange: func(from, to breaker.State) { logBreaker(log, from, to) },
	})
	if err != nil {
		return err
	}
	s.Store = guarded
	if c.OnFailure.Policy != ratelimit.FailLocal {
		return nil
	}
	local, err := layer.NewDegraded(guarded, &layer.DegradedOptions{
		Instances: c.Instances,
		MaxKeys:   c.MaxKeys,
		OnChange:  func(away bool) { logLocal(log, away) },
	})
	if err != nil {
		return err
	}
	s.Store = local
	closeClient := s.close
	s.close = func() error { return errors.Join(local.Close(), closeClient()) }
	return nil
}

// logBreaker tells of the states that last. A breaker that is open tries again and again.
func logBreaker(log *slog.Logger, from, to breaker.State) {
	switch {
	case from == breaker.Closed:
		log.Warn("the store is away and is not asked", "breaker", to.String())
	case to == breaker.Closed:
		log.Info("the store is back", "breaker", to.String())
	default:
		log.Debug("the store is tried", "breaker", to.String())
	}
}

func logLocal(log *slog.Logger, away bool) {
	if away {
		log.Warn("deciding locally")
	} else {
		log.Info("the store decides again")
	}
}
