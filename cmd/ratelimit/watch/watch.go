// Package watch loads a configuration again when its files change.
//
// It looks at the files a few times a second. Notifications of the kernel (inotify, as fsnotify
// uses it) would come sooner, but do not come at all from network file systems, from some bind
// mounts of containers, and where all watches of a user are taken.
//
// A change is loaded when two looks in a row have found the same, so that a file is not read while
// somebody writes it. Somebody who pauses is not noticed: write another file, and rename it.
package watch

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/truewindow/ratelimit"
)

const (
	interval = 250 * time.Millisecond
	// share bounds the time that looks take, as with very many files: a tenth of all. It does not
	// count loads, of which there is one for each change.
	share = 10
	// recheck is how long after a load the contents are compared once more: some file systems keep
	// times to the second or two, so that a second change can look like the first.
	recheck = 3 * time.Second
)

// A Load reads the configuration and puts it in force. It returns the files to follow: paths and
// patterns of [filepath.Match], or nil to follow the same as before. If it returns an error, it
// must have changed nothing.
type Load func(context.Context) (follow []string, err error)

// Status says what is in force.
type Status struct {
	Loaded time.Time // when it was loaded
	Hash   string    // the SHA-256 hash of its files, in hexadecimal
	Failed int       // loads that have failed since New
	Err    error     // why the last load failed, or nil
}

// An About describes what is in force, for the line that logs a load. The line has no hash by
// itself, since files may be secret.
type About func(Status) slog.Attr

// A Watcher follows files. It is safe for concurrent use.
type Watcher struct {
	load  Load
	about []About
	log   *slog.Logger
	stop  context.CancelFunc
	done  chan struct{}

	// Of the goroutine that looks.
	follow []string
	tried  snapshot // of the last load
	hash   string   // of the last load
	seen   snapshot // the last one
	again  time.Time

	mu     sync.Mutex
	status Status
}

// New loads the configuration and follows files, paths or patterns, until ctx ends or Close is
// called. From then on it loads again when a file has changed, appeared or disappeared, and at once
// at a SIGHUP. A load that fails changes nothing and is logged; its files are loaded again when
// they change. Each load is one line of the log, with about if it succeeds. An error is that of the
// first load, or wraps [ratelimit.ErrInvalid].
func New(
	ctx context.Context, log *slog.Logger, files []string, load Load, about ...About,
) (*Watcher, error) {
	return start(ctx, log, files, load, false, about)
}

// NewForced is New, except that the first load may fail, and is tried again as later ones are.
// Until one succeeds, nothing is in force and Loaded of the status is zero.
func NewForced(
	ctx context.Context, log *slog.Logger, files []string, load Load, about ...About,
) (*Watcher, error) {
	return start(ctx, log, files, load, true, about)
}

func start(
	ctx context.Context, log *slog.Logger, files []string, load Load, force bool, about []About,
) (*Watcher, error) {
	for _, f := range files {
		if _, err := filepath.Match(f, ""); err != nil {
			return nil, fmt.Errorf("%w options: %q: %w", ratelimit.ErrInvalid, f, err)
		}
	}
	ctx, stop := context.WithCancel(ctx)
	w := &Watcher{
		load: load, about: about, log: log, stop: stop, done: make(chan struct{}),
		follow: slices.Clone(files)}
	err := w.try(ctx, lookAt(w.follow))
	if err != nil && !force {
		stop()
		return nil, err
	}
	w.loaded(err)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer close(w.done)
		defer signal.Stop(hangups)
		w.run(ctx, hangups)
	}()
	return w, nil
}

// Status returns what is in force.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Close ends the watcher. It waits for a load that is running, whose context it ends.
func (w *Watcher) Close() {
	w.stop()
	<-w.done
}

func (w *Watcher) run(ctx context.Context, hangups <-chan os.Signal) {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			w.reload(ctx, lookAt(w.follow))
		case <-timer.C:
			timer.Reset(max(interval, (share-1)*w.check(ctx)))
		}
	}
}

// check looks, loads what has changed and does not change any more, and returns how long it looked.
func (w *Watcher) check(ctx context.Context) (looked time.Duration) {
	began := time.Now()
	now := lookAt(w.follow)
	looked = time.Since(began)
	agree := now.equal(w.seen)
	w.seen = now
	switch {
	case !agree:
	case !now.equal(w.tried):
		w.reload(ctx, now)
	case !w.again.IsZero() && !time.Now().Before(w.again):
		if w.again = (time.Time{}); now.hash() != w.hash {
			w.reload(ctx, now)
		}
	}
	return looked
}

// reload loads the configuration, whose files are as before says or newer.
func (w *Watcher) reload(ctx context.Context, before snapshot) {
	if err := w.try(ctx, before); ctx.Err() == nil { // else Close has ended it
		w.loaded(err)
	}
}

// try loads the configuration. If that has other files than before, it loads it again, since they
// may have changed after the load and before the first look at them.
func (w *Watcher) try(ctx context.Context, before snapshot) error {
	const rounds = 3 // for a list that changes all the time
	for i := 1; ; i++ {
		w.tried, w.seen, w.hash = before, before, before.hash()
		follow, err := w.load(ctx)
		if follow == nil || slices.Equal(follow, w.follow) {
			return err
		}
		w.follow = slices.Clone(follow)
		if i == rounds {
			return err
		}
		before = lookAt(w.follow)
	}
}

// loaded sets the status after a load, and logs it.
func (w *Watcher) loaded(err error) {
	w.again = time.Now().Add(recheck)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status.Err = err; err != nil {
		w.status.Failed++
		w.log.Error("the configuration is not loaded: what was in force stays", "error", err)
		return
	}
	w.status.Loaded, w.status.Hash = time.Now(), w.hash
	var attrs []slog.Attr
	for _, about := range w.about {
		attrs = append(attrs, about(w.status))
	}
	w.log.LogAttrs(context.Background(), slog.LevelInfo, "the configuration is loaded", attrs...)
}
