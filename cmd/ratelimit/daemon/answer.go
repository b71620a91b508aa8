package daemon

import (
	"context"
	"log/slog"

	"github.com/truewindow/ratelimit/backend"
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
	store, err := backend.Open(ctx, c.Store)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = store.Close() }() // every decision has ended
	log := slog.New(slog.DiscardHandler)
	limits, err := c.newLimits(ctx, c.newDecider(store.Store, nil), log)
	if err != nil {
		return 0, nil, err
	}
	api := httpapi.New(httpapi.Options{
		Decider: limits.decider, Config: limits.config.Load, Log: log})
	status, text = api.AnswerBody(ctx, path, body)
	return status, text, nil
}
