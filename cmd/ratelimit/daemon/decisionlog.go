package daemon

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"

	"github.com/truewindow/ratelimit"
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

// sampled reports whether to log a decision.
func (l *decisionLog) sampled() bool { return l != nil && rand.Float64() < l.share }

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
	if err == nil && !opts.Peek && !opts.Force && l.sampled() {
		l.decision(ctx, requests[0].Domain, &decided)
	}
	return decided, err
}

// decision logs a decision of descriptors, which share a domain.
func (l *decisionLog) decision(ctx context.Context, domain string, d *decision.Decision) {
	line := newDecisionLine()
	for _, p := range d.Parts {
		for _, s := range p.Statuses {
			source := "none" // the store was not asked
			if s.Asked {
				source = s.Result.Source.String()
			}
			line.add(s.Limit.Name, source, l.hash(s.Key), !s.Allowed && !s.Shadow)
		}
	}
	l.write(ctx, domain, d.Allowed, line)
}

// claims logs a decision of claims.
func (l *decisionLog) claims(
	ctx context.Context, claims []ratelimit.Claim, results []ratelimit.Result,
) {
	if !l.sampled() {
		return
	}
	line := newDecisionLine()
	allowed := true
	for i, c := range claims {
		line.add(c.Limiter.Limits()[0].Name, results[i].Source.String(), l.hash(c.Key),
			!results[i].Allowed)
		allowed = allowed && results[i].Allowed
	}
	l.write(ctx, "", allowed, line)
}

// A decisionLine has the limits of a decision, for each its source and the hash of its key, and the
// limits that refused it.
type decisionLine struct{ limits, sources, keys, refused []string }

// newDecisionLine returns a line without limits, which JSON shows as empty lists.
func newDecisionLine() decisionLine {
	return decisionLine{[]string{}, []string{}, []string{}, []string{}}
}

func (d *decisionLine) add(limit, source, key string, refused bool) {
	if refused && !slices.Contains(d.refused, limit) {
		d.refused = append(d.refused, limit)
	}
	d.limits = append(d.limits, limit)
	d.sources = append(d.sources, source)
	d.keys = append(d.keys, key)
}

func (l *decisionLog) write(ctx context.Context, domain string, allowed bool, line decisionLine) {
	l.log.LogAttrs(ctx, slog.LevelInfo, "decision",
		slog.String("domain", envoy.EscapeInvalid(domain)), slog.Bool("allowed", allowed),
		slog.Any("refused_by", line.refused), slog.Any("limits", line.limits),
		slog.Any("sources", line.sources), slog.Any("key_hashes", line.keys))
}
