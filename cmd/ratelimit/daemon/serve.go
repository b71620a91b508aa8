package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/layer"
)

// shutdownTimeout is how long requests in flight may take after the signal to stop.
const shutdownTimeout = 10 * time.Second

type serveCmd struct {
	Store     string            `env:"STORE" default:"memory" placeholder:"URL"`
	OnFailure onFailure         `env:"ON_FAILURE" placeholder:"POLICY"`
	Instances int               `env:"INSTANCES" placeholder:"N"`
	Limit     []ratelimit.Limit `env:"LIMIT" default:"10/1m" placeholder:"[NAME=]MAX/WINDOW"`
	InFlight  []ratelimit.Limit `env:"IN_FLIGHT" placeholder:"NAME=MAX/WINDOW"`
	Block     []blockFlag       `env:"BLOCK" placeholder:"NAME=LONGEST"`

	TopKeys      int  `env:"TOP_KEYS" placeholder:"N"`
	TopKeysPlain bool `env:"TOP_KEYS_PLAIN"`

	Addr string     `env:"ADDR" default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	Host []hostFlag `env:"HOST" placeholder:"NAME"`

	BreakerFailures int           `env:"BREAKER_FAILURES" default:"20" placeholder:"N"`
	BreakerPause    time.Duration `env:"BREAKER_PAUSE" default:"500ms" placeholder:"DURATION"`

	LogFormat string     `env:"LOG_FORMAT" default:"text" enum:"text,json" placeholder:"FORMAT"`
	LogLevel  slog.Level `env:"LOG_LEVEL" default:"info" placeholder:"LEVEL"`
}

// Validate is called by kong when it has parsed the command line.
func (c *serveCmd) Validate() error {
	if err := c.checkTopKeys(); err != nil {
		return err
	}
	switch {
	case !mayFail(c.Store):
		return nil
	case c.OnFailure == "":
		return errNoPolicy
	case c.OnFailure == failLocal && c.Instances < 1:
		return errNoInstances
	}
	return nil
}

// Run serves until ctx ends.
func (c *serveCmd) Run(ctx context.Context, stderr io.Writer) error {
	log := c.logger(stderr)
	defer ignoreHangups(log)()
	store, err := backend.Open(ctx, c.Store)
	if err != nil {
		return err
	}
	defer func() {
		if err := store.Close(); err != nil {
			log.Error("closing the store", "error", err)
		}
	}()
	counts, err := newMetrics()
	if err != nil {
		return err
	}
	defer func() { _ = counts.Close() }()
	var guarded *layer.Breaker
	if mayFail(c.Store) {
		if guarded, err = c.guard(store, log); err != nil {
			return err
		}
	}
	local, _ := store.Store.(*layer.Degraded)
	if err := counts.watch(store, guarded, local); err != nil {
		return err
	}
	top, err := c.newTopKeys(time.Now)
	if err != nil {
		return err
	}
	budgets, err := c.newBudgets(store, top.and(counts.Observe))
	if err != nil {
		return err
	}
	handler := newAPI(budgets, log)
	handler.top = top
	if mayFail(c.Store) {
		if err := checkStore(ctx, store, log); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return err
	}
	log.Info("listening", "addr", listener.Addr().String(), "store", store.Name, "limits",
		fmt.Sprint(budgets.all.Limits()), "in-flight", fmt.Sprint(c.InFlight),
		"blocks", fmt.Sprint(c.Block))
	return serve(ctx, listener,
		newHosts(c.Addr, c.Host).only(counts.measure(handler)), log)
}

// ignoreHangups logs each SIGHUP, which would otherwise end the process. The function that it
// returns ends that.
func ignoreHangups(log *slog.Logger) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for range hangups {
			log.Warn("SIGHUP is ignored: flags are read only at the start")
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
	}
}

func (c *serveCmd) logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// named returns l with its window as its name if it has none. All limits of the daemon come from
// one command line, where two of the same window are refused.
func named(l ratelimit.Limit) ratelimit.Limit {
	if l.Name == "" {
		l.Name = l.Window.String()
	}
	return l
}

// serve answers on listener until ctx ends. Then it lets the requests in flight finish.
func serve(
	ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger,
) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	log.Info("shutting down")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close()
		return fmt.Errorf("requests that were still in flight %v after the signal were cut off: %w",
			shutdownTimeout, err)
	}
	log.Info("stopped")
	return nil
}
