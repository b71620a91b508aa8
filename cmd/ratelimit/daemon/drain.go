package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
)

// shutdownTimeout is how long requests in flight may take after the signal to stop and the drain.
const shutdownTimeout = 10 * time.Second

// serve answers on servers until ctx ends. From then on it is not ready; it answers for as long as
// drain, so that load balancers notice, and then lets the requests in flight finish.
func serve(
	ctx context.Context, servers []server, ready *httpapi.Readiness, drain time.Duration,
	log *slog.Logger,
) error {
	failed := make(chan error, len(servers))
	for _, s := range servers {
		go func() { failed <- s.Serve(s.listener) }()
	}
	select {
	case err := <-failed:
		for _, s := range servers {
			_ = s.Close()
		}
		return err
	case <-ctx.Done():
	}
	ready.Drain()
	log.Info("shutting down", "drain", drain)
	time.Sleep(drain)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	problems := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers { // at once: none accepts connections while another one waits
		wg.Go(func() {
			if err := s.Shutdown(ctx); err != nil {
				_ = s.Close()
				problems[i] = fmt.Errorf("requests that were still in flight %v after the drain "+
					"were cut off: %w", shutdownTimeout, err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(problems...); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}
