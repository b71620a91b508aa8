package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/backend/serverstore"
)

// probeTimeout bounds the question to the server at the start, so that a server that does not
// answer delays nothing.
const probeTimeout = time.Second

// mayFail reports whether the store at a URL can be unavailable: all but that in memory.
func mayFail(url string) bool {
	u, err := backend.ParseURL(url)
	return err != nil || u.Scheme != "memory"
}

// checkStore asks the store what its server is. An error says that it is of the wrong type or
// refuses the user; whatever else is wrong may pass, and is only logged.
func checkStore(ctx context.Context, store *backend.Store, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	server, err := store.Probe(ctx)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, serverstore.ErrDenied) {
		return err
	}
	if err != nil {
		log.Error("the store cannot decide: until it can, --on-failure decides",
			"error", err)
		return nil
	}
	log.Info("the store answers", "server", server.Name, "version", server.Version)
	for _, warning := range server.Warnings {
		log.Warn(warning)
	}
	return nil
}
