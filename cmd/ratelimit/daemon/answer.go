package daemon

import (
	"context"
	"errors"
	"log/slog"

	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
)

// AnswerBody answers a body for one of the paths of POST as the service would, without one:
// --config or --limit have the limits, and --store their states. An answer without a text has no
// body.
func (c *Serve) AnswerBody(
	ctx context.Context, path string, body []byte,
) (status int, text []byte, err error) {
	if err := c.readConfig(); err != nil {
		return 0, nil, err
	}
	store, err := backend.Open(ctx, c.storeURL())
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = store.Close() }() // every decision has ended
	keyed, err := c.hashKeys(store.Store)
	if err != nil {
		return 0, nil, err
	}
	log := slog.New(slog.DiscardHandler)
	// A hash made by this process alone would tell nobody anything.
	trail, err := c.openAudit(ctx, c.Stdout, nil, log)
	if err != nil {
		return 0, nil, err
	}
	defer func() {
		trail.Close()
		if trail.file != nil && trail.file.Lost() > 0 && err == nil {
			err = errors.New("it is done, and the audit could not be written")
		}
	}()
	limits, err := c.newLimits(ctx, c.newDecider(keyed, nil), nil, log)
	if err != nil {
		return 0, nil, err
	}
	api := httpapi.New(httpapi.Options{
		Decider: limits.decider, Config: limits.config.Load, Log: log, Audit: trail.Trail})
	status, text = api.AnswerBody(access.With(ctx, access.User()), path, body)
	return status, text, nil
}
