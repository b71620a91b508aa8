package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/readfile"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/cmd/ratelimit/watch"
)

var errFileAndFlags = errors.New("--config has the limits: leave out --limit, --in-flight and " +
	"--block")

// readConfig reads the files of --config, or those that variables of envoyproxy/ratelimit name, and
// takes the settings that the flags do not have from them. Without either and without --limit there
// is one limit of 10/1m.
func (c *serveCmd) readConfig() error {
	if err := c.readEnvoyVariables(); err != nil {
		return err
	}
	switch {
	case c.Config != "":
		c.source.Path = c.Config
	case c.source.Runtime == nil:
		c.Store = cmp.Or(c.Store, "memory")
		if c.Limit == nil { // an empty --limit is a mistake
			c.Limit = []ratelimit.Limit{{Max: 10, Window: time.Minute}}
		}
		return nil
	}
	if len(c.Limit)+len(c.InFlight)+len(c.Block) > 0 {
		return errFileAndFlags
	}
	var err error
	if c.loaded, err = c.source.Load(); err != nil && !c.envoy.ForceStart {
		return err
	}
	if f := c.loaded.File; f != nil {
		if c.Store == "" {
			if c.Store, err = storeOf(f); err != nil {
				return err
			}
		}
		c.OnFailure = cmp.Or(c.OnFailure, onFailure(f.OnFailure.Value))
		c.Instances = cmp.Or(c.Instances, f.Instances.Value)
	}
	c.Store = cmp.Or(c.Store, "memory")
	return nil
}

// storeOf returns the URL of the store of a file, with the password of password_file.
func storeOf(f *rules.File) (string, error) {
	store := cmp.Or(f.Store.Value, "memory")
	if f.PasswordFile.Value == "" {
		return store, nil
	}
	path := f.PasswordFile.Value
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(f.PasswordFile.At.File), path)
	}
	password, err := readfile.Regular(path, maxCredentials)
	if err != nil {
		return "", fmt.Errorf("%v: password_file: %w", f.PasswordFile.At, err)
	}
	scheme, rest, ok := strings.Cut(store, "://")
	user, hosts, hasUser := strings.Cut(rest, "@")
	if !hasUser {
		user, hosts = "", rest
	}
	if !ok || strings.Contains(user, ":") {
		return "", fmt.Errorf("%v: password_file needs a store on a server, whose URL has no "+
			"password", f.PasswordFile.At)
	}
	text := url.UserPassword("", strings.TrimRight(string(password), "\r\n")).String()
	return scheme + "://" + user + text + "@" + hosts, nil
}

// A live API answers with the limits that were loaded last.
type live struct {
	*unchanging
	current atomic.Pointer[api]
	cmd     *serveCmd
	watcher *watch.Watcher // nil without files

	restarts  atomic.Pointer[restarts] // the last ones, or nil
	restarted atomic.Int64             // limits of all loads
}

// restarts are limits that count from zero since a load.
type restarts struct {
	at     time.Time
	limits rules.Problems
}

func (l *live) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.current.Load().ServeHTTP(w, r)
}

// newLive returns an API with the limits of the command line, or, until they are followed, none.
func (c *serveCmd) newLive(
	store ratelimit.Store, observe observeFunc, log *slog.Logger, options ...decision.Option,
) (*live, error) {
	a := newAPI(decision.New(store, append(options,
		decision.WithPolicy(c.OnFailure.policy()), decision.WithObserver(observe))...), log)
	if c.loaded == nil {
		set, err := c.flagLimits()
		if err != nil {
			return nil, err
		}
		if err := a.decider.Use(set); err != nil {
			return nil, err
		}
	}
	l := &live{unchanging: a.unchanging, cmd: c}
	l.current.Store(a)
	return l, nil
}

// limits returns the limits of --limit, or how many limits --config has, for the log.
func (l *live) limits() string {
	if current := l.current.Load(); current.config != nil {
		return fmt.Sprintf("%d of %s", len(current.config.Limits()), current.config.Follow[0])
	}
	limits := make([]ratelimit.Limit, len(l.cmd.Limit))
	for i, limit := range l.cmd.Limit {
		limits[i] = withName(limit)
	}
	return fmt.Sprint(limits)
}

// configPath returns the path of the file or directory of the limits, or "".
func (c *serveCmd) configPath() string {
	if c.source.Runtime != nil {
		return c.source.Runtime.Directory()
	}
	return c.source.Path
}

// inForce returns what the log says of files: none without files.
func (l *live) inForce() []any {
	if l.watcher == nil {
		return nil
	}
	return []any{"config", l.cmd.configPath(), "hash", l.watcher.Status().Hash}
}

// follow loads the limits of files, and again when the files change, until the function that it
// returns is called. Without files it does nothing.
func (l *live) follow(ctx context.Context) (stop func(), err error) {
	if l.cmd.loaded == nil {
		return func() {}, nil
	}
	l.cmd.loaded = l.cmd.loaded.Settings() // the watcher loads the limits again, and has its own
	log := l.log.With("config", l.cmd.configPath())
	hash := func(s watch.Status) slog.Attr { return slog.String("hash", s.Hash) }
	limits := func(watch.Status) slog.Attr {
		return slog.Int("limits", len(l.current.Load().config.Limits()))
	}
	start := watch.New
	if l.cmd.envoy.ForceStart {
		start = watch.NewForced
		none, err := rules.Compile(nil, nil)
		if err != nil {
			return nil, err
		}
		l.current.Store(&api{l.unchanging,
			&config.Config{Set: none, Follow: l.cmd.loaded.Follow}})
	}
	l.watcher, err = start(ctx, log, l.cmd.loaded.Follow, l.load, hash, limits)
	if err != nil {
		return nil, err
	}
	return l.watcher.Close, nil
}

func (l *live) load(context.Context) ([]string, error) {
	c, err := l.cmd.source.Load()
	if err != nil {
		return c.Follow, err
	}
	if err := l.decider.Use(c.Set); err != nil {
		return c.Follow, err
	}
	before := l.current.Load().config
	l.current.Store(&api{l.unchanging, c})
	l.noteRestarts(c, before)
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
func (l *live) noteRestarts(c, before *config.Config) {
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
