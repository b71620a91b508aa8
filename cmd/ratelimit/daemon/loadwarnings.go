package daemon

import (
	"strings"

	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// warnOfStreams logs limits with holds that only calls over gRPC reach: Envoy's protocol holds
// nothing, and what it reports at the end of a stream counts above the limit only with charge:
// always.
func (l *limits) warnOfStreams(c *config.Config) {
	if c.File == nil || l.cmd.GRPCAddr == "" {
		return
	}
	if names := unheldBudgets(c.Set.Limits()); len(names) > 0 {
		l.log.Warn("these limits hold nothing for Envoy, only for Kuadrant: if Envoy reports "+
			"units at the end of a stream, a limit without charge: always refuses those that do "+
			"not fit, and never fills", "limits", names)
	}
}

// unheldBudgets returns the limits with holds of the entry domain, which Envoy's calls have, if no
// limit charges always. Limits without that entry may be for clients that hold over HTTP.
func unheldBudgets(limits []*rules.Limit) (names []string) {
	for _, l := range limits {
		switch {
		case l.Always:
			return nil
		case l.Holds > 0 && l.Algorithm != "in-flight" && hasDomain(l):
			names = append(names, l.Name)
		}
	}
	return names
}

func hasDomain(l *rules.Limit) bool {
	for _, c := range l.When {
		if c.Entry == "domain" {
			return true
		}
	}
	return false
}

// warnOfSlots logs that a cluster decides limits of different keys one by one, if the URL of the
// store has no tag that puts them on one server.
func (l *limits) warnOfSlots(c *config.Config) {
	u, err := backend.ParseURL(l.cmd.Store)
	if err != nil || !strings.HasSuffix(u.Scheme, "+cluster") {
		return
	}
	if tag, _ := u.Param("tag"); tag != "" {
		return
	}
	keys := make(map[string]bool)
	for _, limit := range c.Limits() {
		if !limit.Shadow {
			keys[strings.Join(limit.Key, "/")] = true
		}
	}
	if len(keys) > 1 || c.Domains != nil {
		l.log.Warn("on a cluster, limits of different keys are decided one by one, and those " +
			"before one that refuses may be charged: see tag in the URL of the store")
	}
}
