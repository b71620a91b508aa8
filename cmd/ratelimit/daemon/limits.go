package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoyfile"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/cmd/ratelimit/watch"
	"github.com/truewindow/ratelimit/cmd/ratelimit/xds"
)

// limits are the limits in force: those of flags, or those of files, which are loaded again when
// they change.
type limits struct {
	cmd     *Serve
	decider *decision.Decider
	leases  *leases // nil: limits have none
	log     *slog.Logger
	follows follower // nil without files, or if they are not followed

	config    atomic.Pointer[config.Config] // nil without files
	restarts  atomic.Pointer[restarts]      // the last ones, or nil
	restarted atomic.Int64                  // limits of all loads
	temporary temporaryLog
}

// A follower keeps in force what files or a server of xDS have.
type follower interface {
	Status() watch.Status
	Close()
}

// restarts are limits that count from zero since a load.
type restarts struct {
	at     time.Time
	limits rules.Problems
}

// newLimits puts the limits of the command line in force. Those of files are loaded once.
func (c *Serve) newLimits(
	ctx context.Context, d *decision.Decider, leases *leases, log *slog.Logger,
) (*limits, error) {
	l := &limits{cmd: c, decider: d, leases: leases, log: log}
	if c.loaded != nil {
		_, err := l.load(ctx)
		return l, err
	}
	set, err := c.Compile()
	if err != nil {
		return nil, err
	}
	return l, d.Use(set)
}

// followLimits is newLimits that loads again what changes, until Close.
func (c *Serve) followLimits(
	ctx context.Context, d *decision.Decider, leases *leases, trail *audit.Trail,
	log *slog.Logger,
) (*limits, error) {
	if c.loaded == nil {
		return c.newLimits(ctx, d, leases, log)
	}
	l := &limits{cmd: c, decider: d, leases: leases, log: log}
	l.temporary.trail = trail
	if c.source.XDS != nil {
		return l.followXDS(ctx)
	}
	hash := func(s watch.Status) slog.Attr { return slog.String("hash", s.Hash) }
	count := func(watch.Status) slog.Attr {
		return slog.Int("limits", len(l.config.Load().Limits()))
	}
	start := watch.New
	if c.envoy.ForceStart {
		if err := l.useNone(); err != nil {
			return nil, err
		}
		start = watch.NewForced
	}
	var err error
	l.follows, err = start(ctx, log.With("config", c.source.String()), c.loaded.Follow, l.load,
		hash, count)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// useNone puts a configuration in force in place of the first one. Calls are errors until there is
// another.
func (l *limits) useNone() error {
	none, err := rules.Compile(nil, nil)
	if err == nil {
		l.config.Store(&config.Config{Set: none, Follow: l.cmd.loaded.Follow})
	}
	return err
}

// followXDS is followLimits for a server of xDS. It waits for a first configuration, unless
// variables say that it need not.
func (l *limits) followXDS(ctx context.Context) (*limits, error) {
	if err := l.useNone(); err != nil {
		return nil, err
	}
	f := xds.Follow(*l.cmd.source.XDS, func(_ context.Context, r xds.Response) error {
		c, err := l.cmd.source.Resources(r)
		if err != nil {
			return err
		}
		return l.use(c)
	}, l.log)
	if l.follows = f; l.cmd.envoy.ForceStart {
		return l, nil
	}
	l.log.Info("the service waits for a first configuration by xDS", "xds", l.cmd.source.String())
	if err := f.Wait(ctx); err != nil {
		f.Close()
		return nil, err
	}
	return l, nil
}

// Close ends the loads.
func (l *limits) Close() {
	l.temporary.close()
	if l.follows != nil {
		l.follows.Close()
	}
}

func (l *limits) load(context.Context) ([]string, error) {
	c, err := l.cmd.source.Load()
	if err == nil {
		err = l.use(c)
	}
	return c.Follow, err
}

// use puts a configuration in force.
func (l *limits) use(c *config.Config) error {
	if err := l.decider.Use(c.Set); err != nil {
		return err
	}
	if l.leases != nil {
		l.leases.use(c.Set.Limits())
	}
	l.noteRestarts(c, l.config.Swap(c))
	l.temporary.use(l.log, c.Set)
	for _, p := range c.Warnings(l.cmd.localInstances()) {
		l.log.Warn("the configuration has a warning", "at", p.At.String(), "warning", p.Text)
	}
	l.warnOfStreams(c)
	l.warnOfSlots(c)
	if old, now := l.cmd.loaded.File, c.File; old != nil && now != nil &&
		(old.Store.Value != now.Store.Value || old.OnFailure.Value != now.OnFailure.Value ||
			old.Instances.Value != now.Instances.Value ||
			old.KeySecretFile.Value != now.KeySecretFile.Value) {
		l.log.Warn("store, key_secret_file, on_failure and instances of --config are read only " +
			"at the start")
	}
	return nil
}

// noteRestarts logs, counts and keeps for the page which limits of c count from zero, in place of
// going on from those of before, which is nil at the start.
func (l *limits) noteRestarts(c, before *config.Config) {
	if before == nil {
		return
	}
	limits := c.Restarts(before)
	if len(limits) == 0 {
		return
	}
	l.restarts.Store(&restarts{time.Now(), limits})
	l.restarted.Add(int64(len(limits)))
	const most = 10 // of a line
	texts := make([]string, 0, most)
	for _, p := range limits[:min(most, len(limits))] {
		texts = append(texts, p.Text)
	}
	l.log.Warn("limits count from zero since this load", "count", len(limits), "limits", texts)
}

// domains returns the files of envoyproxy/ratelimit that are in force, or nil.
func (l *limits) domains() *envoyfile.Domains {
	if c := l.config.Load(); c != nil {
		return c.Domains
	}
	return nil
}

// String returns the limits of --limit, or how many limits --config has, for the log.
func (l *limits) String() string {
	if c := l.config.Load(); c != nil {
		return fmt.Sprintf("%d of %s", len(c.Limits()), c.Follow[0])
	}
	return fmt.Sprint(l.cmd.Limit)
}

// attrs returns what the log says of files: none without files.
func (l *limits) attrs() []any {
	if l.follows == nil {
		return nil
	}
	return []any{"config", l.cmd.source.String(), "hash", l.follows.Status().Hash}
}
