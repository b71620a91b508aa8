package daemon

import (
	"context"
	"errors"
	"log/slog"

	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
)

// mayFail reports whether the store at a URL can be unavailable. Only the store in memory cannot.
func mayFail(url string) bool {
	u, err := backend.ParseURL(url)
	return err != nil || u.Scheme != "memory"
}

// checkStore probes the server of the store. It returns an error if the server is of the wrong type
// or refuses the user. Other failures may be temporary and are only logged. probe is for the
// readiness; it is nil if requests are answered while the store is unavailable.
func (c *Serve) checkStore(
	ctx context.Context, store *guardedStore, log *slog.Logger,
) (probe func(context.Context) error, err error) {
	if !mayFail(c.Store) {
		return nil, nil
	}
	if c.OnFailure == failClosed {
		probe = func(ctx context.Context) error {
			_, err := store.Probe(ctx)
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, httpapi.ProbeTimeout)
	defer cancel()
	server, err := store.Probe(ctx)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, serverstore.ErrDenied) {
		return nil, err
	}
	if err != nil {
		log.Error("the store cannot decide: --on-failure applies until it can",
			"error", err)
		return probe, nil
	}
	log.Info("the store answers", "server", server.Name, "version", server.Version)
	for _, warning := range server.Warnings {
		log.Warn(warning)
	}
	store.warnOfNewSecret(ctx, log)
	return probe, nil
}
