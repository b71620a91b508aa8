package daemon

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"

	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoy"
	"github.com/truewindow/ratelimit/topkeys"
)

// A decisionLog logs a share of the decisions, without keys and values. A nil one logs nothing.
type decisionLog struct {
	*decision.Decider
	share float64
	hash  func(key string) string
	log   *slog.Logger
}

// newHash returns the hashes of keys in the log, which are those of top, unless that shows keys.
func newHash(top *topKeys) (func(key string) string, error) {
	if top != nil && !top.plain {
		return top.Name, nil
	}
	hashes, err := topkeys.New(&topkeys.Options{Size: 1})
	if err != nil {
		return nil, err
	}
	return hashes.Name, nil
}

// newDecisionLog returns the log of --log-decisions, or nil.
func (c *serveCmd) newDecisionLog(
	d *decision.Decider, hash func(key string) string, log *slog.Logger,
) *decisionLog {
	if c.LogDecisions == 0 {
		return nil
	}
	return &decisionLog{d, c.LogDecisions, hash, log}
}

// deciding returns what decides descriptors: the decider, or the log around it.
func (u *unchanging) deciding() envoy.Decider {
	if u.decisions == nil {
		return u.decider
	}
	return u.decisions
}

// Decide decides requests, and logs a share of the decisions.
func (l *decisionLog) Decide(
	ctx context.Context, requests []decision.Request, opts decision.Options,
) (decision.Decision, error) {
	decided, err := l.Decider.Decide(ctx, requests, opts)
	if err == nil && !opts.Peek && !opts.Force && rand.Float64() < l.share {
		l.decision(ctx, requests[0].Domain, &decided)
	}
	return decided, err
}

// decision logs a decision of requests, which share a domain: its limits, for each its source and
// the hash of its key, and the limits that refused it.
func (l *decisionLog) decision(ctx context.Context, domain string, d *decision.Decision) {
	limits, sources, hashes, refused := []string{}, []string{}, []string{}, []string{}
	for _, p := range d.Parts {
		for _, s := range p.Statuses {
			source := "none" // the store was not asked
			if s.Asked {
				source = s.Result.Source.String()
			}
			if !s.Allowed && !s.Shadow && !slices.Contains(refused, s.Limit.Name) {
				refused = append(refused, s.Limit.Name)
			}
			limits, sources = append(limits, s.Limit.Name), append(sources, source)
			hashes = append(hashes, l.hash(s.Key))
		}
	}
	l.log.LogAttrs(ctx, slog.LevelInfo, "decision",
		slog.String("domain", envoy.EscapeInvalid(domain)), slog.Bool("allowed", d.Allowed),
		slog.Any("refused_by", refused), slog.Any("limits", limits),
		slog.Any("sources", sources), slog.Any("key_hashes", hashes))
}
