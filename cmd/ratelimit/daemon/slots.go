package daemon

import (
	"strings"

	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
)

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
