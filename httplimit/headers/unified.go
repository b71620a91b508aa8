package headers

import (
	"net/http"
	"strings"
	"time"
)

// The fields that Anthropic sends to subscriptions have a state instead of units: one of the
// account, and one of each window, such as 5h, 7d or 7d_opus. Overage is what an account may use
// beyond its windows, and pay for: its status is rejected for all who have none.
const (
	unifiedPrefix  = "Anthropic-Ratelimit-Unified-"
	unifiedOverage = "Overage"
)

func isUnified(field string) bool { return strings.HasPrefix(field, unifiedPrefix) }

// appendUnified appends a quota with nothing left if these fields say that the account, or a window
// if they do not say it of the account, is used up.
func appendUnified(quotas []Quota, h http.Header, now time.Time) []Quota {
	q := Quota{Name: "unified", Limit: -1}
	var usedUp, inWindow bool
	for field, lines := range h {
		window, ok := strings.CutPrefix(field, unifiedPrefix)
		window, ends := strings.CutSuffix(window, "-Status")
		if !ok || !ends || window == unifiedOverage || !isRejected(lines) {
			continue
		}
		usedUp = true
		if reset, ok := longest(h[unifiedPrefix+window+"-Reset"], time.Second, now); ok {
			q.Reset, inWindow = max(q.Reset, reset), true
		}
	}
	if s, ok := single(h[unifiedPrefix+"Status"]); ok && s != "" {
		usedUp = isRejected(h[unifiedPrefix+"Status"])
	}
	if !usedUp || overage(h) {
		return quotas
	}
	if !inWindow {
		q.Reset, _ = longest(h[unifiedPrefix+"Reset"], time.Second, now)
	}
	return append(quotas, q)
}

func isRejected(lines []string) bool {
	s, _ := single(lines)
	return strings.EqualFold(s, "rejected")
}

// overage reports whether requests are admitted beyond the windows.
func overage(h http.Header) bool {
	inUse, _ := single(h[unifiedPrefix+unifiedOverage+"-In-Use"])
	status, _ := single(h[unifiedPrefix+unifiedOverage+"-Status"])
	return strings.EqualFold(inUse, "true") ||
		strings.HasPrefix(strings.ToLower(status), "allowed") // or allowed_warning
}
