package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoyfile"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/cmd/ratelimit/watch"
)

// limits are the limits in force: those of flags, or those of files, which are loaded again when
// they change.
type limits struct {
	cmd     *Serve
	decider *decision.Decider
	log     *slog.Logger
	watcher *watch.Watcher // nil without files, or if they are not followed

	config    atomic.Pointer[config.Config] // nil without files
	restarts  atomic.Pointer[restarts]      // the last ones, or nil
	restarted atomic.Int64                  // limits of all loads
}

// restarts are limits that count from zero since a load.
type restarts struct {
	at     time.Time
	limits rules.Problems
}

// newLimits puts the limits of the command line in force. Those of files are loaded once.
func (c *Serve) newLimits(
	ctx context.Context, d *decision.Decider, log *slog.Logger,
) (*limits, error) {
	l := &limits{cmd: c, decider: d, log: log}
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

// followLimits is newLimits that loads files again when they change, until Close.
func (c *Serve) followLimits(
	ctx context.Context, d *decision.Decider, log *slog.Logger,
) (*limits, error) {
	if c.loaded == nil {
		return c.newLimits(ctx, d, log)
	}
	l := &limits{cmd: c, decider: d, log: log}
	hash := func(s watch.Status) slog.Attr { return slog.String("hash", s.Hash) }
	count := func(watch.Status) slog.Attr {
		return slog.Int("limits", len(l.config.Load().Limits()))
	}
	start := watch.New
	if c.envoy.ForceStart {
		start = watch.NewForced
		none, err := rules.Compile(nil, nil)
		if err != nil {
			return nil, err
		}
		l.config.Store(&config.Config{Set: none, Follow: c.loaded.Follow})
	}
	var err error
	l.watcher, err = start(ctx, log.With("config", c.configPath()), c.loaded.Follow, l.load,
		hash, count)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Close ends the loads.
func (l *limits) Close() {
	if l.watcher != nil {
		l.watcher.Close()
	}
}

func (l *limits) load(context.Context) ([]string, error) {
	c, err := l.cmd.source.Load()
	if err != nil {
		return c.Follow, err
	}
	if err := l.decider.Use(c.Set); err != nil {
		return c.Follow, err
	}
	l.noteRestarts(c, l.config.Swap(c))
	for _, p := range c.Warnings(l.cmd.localInstances()) {
		l.log.Warn("the configuration has a warning", "at", p.At.String(), "warning", p.Text)
	}
	l.warnOfStreams(c)
	l.warnOfSlots(c)
	if old, now := l.cmd.loaded.File, c.File; old != nil && now != nil &&
		(old.Store.Value != now.Store.Value || old.OnFailure.Value != now.OnFailure.Value ||
			old.Instances.Value != now.Instances.Value) {
		l.log.Warn("store, on_failure and instances of --config are read only at the start")
	}
	return c.Follow, nil
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
	names := make([]ratelimit.Limit, len(l.cmd.Limit))
	for i, limit := range l.cmd.Limit {
		names[i] = config.WithName(limit)
	}
	return fmt.Sprint(names)
}

// attrs returns what the log says of files: none without files.
func (l *limits) attrs() []any {
	if l.watcher == nil {
		return nil
	}
	return []any{"config", l.cmd.configPath(), "hash", l.watcher.Status().Hash}
}
