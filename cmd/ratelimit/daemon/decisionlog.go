package daemon

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"

	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoy"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/topkeys"
)

// newHash returns the hashes of keys in the log, which are those of top, unless that shows keys.
func newHash(top *httpapi.TopKeys) (func(key string) string, error) {
	if top != nil && !top.Plain {
		return top.Name, nil
	}
	hashes, err := topkeys.New(&topkeys.Options{Size: 1})
	if err != nil {
		return nil, err
	}
	return hashes.Name, nil
}

// logDecisions returns an option that logs a share of the decisions, without keys and values: the
// limits of each, the source of their results and the hashes of their keys, and those that refused.
func (c *Serve) logDecisions(hash func(key string) string, log *slog.Logger) decision.Option {
	if c.LogDecisions == 0 {
		return decision.WithLog(nil)
	}
	return decision.WithLog(func(ctx context.Context, domain string, d decision.Decision) {
		if rand.Float64() >= c.LogDecisions {
			return
		}
		limits, sources, hashes, refused := []string{}, []string{}, []string{}, []string{}
		for _, p := range d.Parts {
			for _, s := range p.Statuses {
				source := "none" // the store was not asked
				if s.Asked {
					source = s.Result.Source.String()
				}
				if !d.Allowed && !s.Allowed && !s.Shadow &&
					!slices.Contains(refused, s.Limit.Name) {
					refused = append(refused, s.Limit.Name)
				}
				limits, sources = append(limits, s.Limit.Name), append(sources, source)
				hashes = append(hashes, hash(s.Key))
			}
		}
		log.LogAttrs(ctx, slog.LevelInfo, "decision",
			slog.String("domain", envoy.EscapeInvalid(domain)), slog.Bool("allowed", d.Allowed),
			slog.Any("refused_by", refused), slog.Any("limits", limits),
			slog.Any("sources", sources), slog.Any("key_hashes", hashes))
	})
}
