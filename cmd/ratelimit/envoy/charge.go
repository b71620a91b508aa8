package envoy

import (
	"fmt"
	"slices"
	"sync"

	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
)

// A Charge says what a call charges if one of its descriptors is refused.
type Charge string

// The charges. The empty Charge is ChargeAll.
const (
	ChargeAll Charge = "all" // all descriptors, or none
	// ChargeEach charges each that is not refused.
	ChargeEach Charge = "each"
	// ChargeAlways charges each, as envoyproxy/ratelimit does: what does not fit is refused, and is
	// charged all the same. So a budget that is charged when a stream ends counts all of it, and
	// whoever retries waits longer.
	ChargeAlways Charge = "always"
)

// UnmarshalText reads a Charge.
func (c *Charge) UnmarshalText(text []byte) error {
	*c = Charge(text)
	if !slices.Contains([]Charge{ChargeAll, ChargeEach, ChargeAlways}, *c) {
		return fmt.Errorf("%q is not all, each or always", text)
	}
	return nil
}

// chargeOf returns the charge of a domain.
func (c *Config) chargeOf(domain string) Charge {
	if own, ok := c.ChargeOf[domain]; ok {
		return own
	}
	return c.Charge
}

// options returns how calls of a domain are decided.
func (s *Service) options(domain string) decision.Options {
	charge := s.config.chargeOf(domain)
	return decision.Options{
		Each: charge == ChargeEach || charge == ChargeAlways, Always: charge == ChargeAlways,
		Reached: s.config.Reached, NoInFlight: true,
	}
}

// maxWarned is how many domains are warned of.
const maxWarned = 1000

// warned are the domains that were warned of.
type warned struct {
	mu      sync.Mutex
	domains map[string]bool
}

// first reports whether a domain is new, and not one too many.
func (w *warned) first(domain string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.domains[domain] || len(w.domains) == maxWarned {
		return false
	}
	if w.domains == nil {
		w.domains = make(map[string]bool)
	}
	w.domains[domain] = true
	return true
}

// warnOfLook counts a call that looks at a limit of a file with hits_addend 0, as those do that
// charge when a stream ends, and warns of the first one of a domain: a charge that does not fit is
// dropped, and the budget stays open.
func (s *Service) warnOfLook(domain string, c *translation, d decision.Decision) {
	if s.config.chargeOf(domain) == ChargeAlways || !looks(c, d) {
		return
	}
	s.counts.looks.Add(1)
	if s.looked.first(domain) {
		s.config.Log.Warn("calls look at a limit with hits_addend 0: if others charge it later, "+
			"units that do not fit are not charged, and the limit stays open",
			"domain", domain, "setting", "--envoy-charge="+domain+"=always")
	}
}

// looks reports whether a request of a call asks a limit of a file without units. Limits with Quota
// are charged all the same.
func looks(c *translation, d decision.Decision) bool {
	for i, r := range c.requests {
		if r.N == 0 && slices.ContainsFunc(d.Parts[i].Statuses, func(s decision.Status) bool {
			return s.Limit.Domain != "" && !s.Rate.Unlimited && !s.Limit.Quota
		}) {
			return true
		}
	}
	return false
}
