package caddylimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/truewindow/ratelimit/backend"
	_ "github.com/truewindow/ratelimit/backend/memory" // registers its scheme
	_ "github.com/truewindow/ratelimit/backend/redis"  // registers its schemes
	_ "github.com/truewindow/ratelimit/backend/valkey" // registers its schemes
)

// stores has the open stores by their URL. A configuration that is loaded takes those that it needs
// before the one that it replaces gives them back, so a store lives on if both name it.
var stores = caddy.NewUsagePool()

// A store is an open store, and what is known of its requests and outages.
type store struct {
	*backend.Store
	used      atomic.Bool  // by a request
	running   atomic.Int64 // requests
	endProbe  context.CancelFunc
	probed    chan struct{}   // closed when the probe has ended
	nextWarns [2]atomic.Int64 // the times, in ns, from which the next warning of a kind is written
}

const (
	probeTimeout  = 5 * time.Second
	warnsInterval = 10 * time.Second
)

// closesAfter is how long a store stays open after a reload that no longer has it, and then until
// the requests of the configuration before have ended: Caddy does not wait for these.
var closesAfter = time.Minute

const defaultStore = "memory"

var (
	errBraces = errors.New("a placeholder is empty or unknown: write {env.NAME} or {file.PATH}, " +
		"and percent-encode the braces of a password")
	errNoURL = errors.New("it is not memory or a URL, such as redis://localhost:6379")
)

// openStore returns the store of a URL, whose placeholders it replaces, and a function that gives
// the store back. No error contains the URL.
func openStore(ctx context.Context, url string, logger *zap.Logger) (*store, func() error, error) {
	url, err := caddy.NewReplacer().ReplaceOrErr(url, true, true)
	if err != nil {
		text := err.Error()
		if !strings.Contains(text, "{env.") && !strings.Contains(text, "{file.") {
			err = errBraces // what is between them may be a part of a password
		}
		return nil, nil, &ConfigError{Field: "store", Err: err}
	}
	if url != defaultStore && !strings.Contains(url, ":") {
		return nil, nil, &ConfigError{Field: "store", Err: errNoURL}
	}
	pooled, _, err := stores.LoadOrNew(url, func() (caddy.Destructor, error) {
		opened, err := backend.Open(ctx, url)
		if err != nil {
			return nil, err
		}
		return newStore(opened, logger), nil
	})
	if err != nil {
		if unknown := new(backend.UnknownSchemeError); errors.As(err, &unknown) {
			err = fmt.Errorf("%w, by xcaddy build --with", err)
		}
		return nil, nil, &ConfigError{Field: "store", Err: err}
	}
	return pooled.(*store), func() error {
		_, err := stores.Delete(url)
		return err
	}, nil
}

// newStore begins to ask the store whether it can decide. Caddy starts also if it cannot.
func newStore(opened *backend.Store, logger *zap.Logger) *store {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	s := &store{Store: opened, endProbe: cancel, probed: make(chan struct{})}
	go func() {
		defer close(s.probed)
		if _, err := opened.Probe(ctx); err != nil && !errors.Is(err, context.Canceled) {
			logger.Error("the store cannot decide: on_failure applies until it can",
				zap.String("store", opened.Name), zap.Error(err))
		}
	}()
	return s
}

// Destruct closes the store, later if requests may need it. The pool calls it when no configuration
// has the store any more.
func (s *store) Destruct() error {
	s.endProbe()
	<-s.probed
	if !s.used.Load() {
		return s.Close()
	}
	s.closeLater()
	return nil
}

func (s *store) closeLater() {
	time.AfterFunc(closesAfter, func() {
		if s.running.Load() > 0 {
			s.closeLater()
			return
		}
		_ = s.Close() // nobody waits for its error
	})
}

// begin begins a request, and end ends it.
func (s *store) begin() {
	if !s.used.Load() {
		s.used.Store(true)
	}
	s.running.Add(1)
}

func (s *store) end() { s.running.Add(-1) }

// The kinds of warnings about an outage.
const (
	refused  = iota // requests are answered with 503
	admitted        // requests are admitted without a limit
)

// warnOf writes a warning about an outage, and no further one of its kind for a while.
func (s *store) warnOf(kind int, logger *zap.Logger, err error) {
	now := time.Now().UnixNano()
	next := s.nextWarns[kind].Load()
	if now < next || !s.nextWarns[kind].CompareAndSwap(next, now+int64(warnsInterval)) {
		return
	}
	text := "the store is unavailable: requests are answered with 503"
	if kind == admitted {
		text = "the store is unavailable: requests are admitted without a limit"
	}
	logger.Error(text, zap.String("store", s.Name), zap.Error(err))
}
