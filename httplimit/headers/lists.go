package headers

import (
	"slices"
	"time"
)

// appendLists appends the quotas of the drafts 08 to 11.
func appendLists(quotas []Quota, policyLines, limitLines []string) []Quota {
	policies := policiesOf(policyLines)
	limits := limitsOf(limitLines)
	for i := range limits {
		m := &limits[i]
		partition, _ := m.get("pk")
		q := unknown
		q.Name = m.text
		for j := range policies {
			p := &policies[j]
			if p.Name == m.text && (p.partition == partition.text || p.partition == "") {
				q, p.used = p.Quota, true
				break
			}
		}
		r, _ := m.get("r")
		t, _ := m.get("t")
		q.Remaining, q.Reset = r.number, ofSeconds(t.number)
		quotas = append(quotas, q)
	}
	for i := range policies {
		if !policies[i].used {
			quotas = append(quotas, policies[i].Quota)
		}
	}
	return quotas
}

// limitsOf returns the members of RateLimit of the drafts 08 to 11, or nil if the lines hold none.
func limitsOf(lines []string) []member {
	all, ok := list(lines)
	if !ok || slices.ContainsFunc(all, func(m member) bool {
		return !isNamed(m) || !natural(m, "r", true) || !natural(m, "t", false)
	}) {
		return nil
	}
	return all
}

// policy is a quota of RateLimit-Policy, which has no Remaining.
type policy struct {
	Quota
	partition string // its pk
	used      bool   // by a member of RateLimit
}

// policiesOf returns the policies of the drafts 08 to 11, or nil if the lines hold none.
func policiesOf(lines []string) []policy {
	all, ok := list(lines)
	if !ok {
		return nil
	}
	policies := make([]policy, len(all))
	for i := range all {
		m, p := &all[i], &policies[i]
		if !isNamed(*m) || !natural(*m, "q", true) || !natural(*m, "w", false) {
			return nil
		}
		q, _ := m.get("q")
		w, _ := m.get("w")
		p.Quota = Quota{Name: m.text, Limit: q.number, Window: ofSeconds(w.number), Remaining: -1}
		if unit, found := m.get("qu"); found && unit.kind != text {
			return nil
		} else if unit.text != "requests" && unit.text != "request" {
			p.Unit = Unit(unit.text)
		}
		partition, _ := m.get("pk")
		p.partition = partition.text
	}
	return policies
}

func isNamed(m member) bool { return m.kind == text }

// natural reports whether a parameter is an Integer that is not negative, or is missing and not
// required.
func natural(m member, key string, required bool) bool {
	v, found := m.get(key)
	return !found && !required || found && v.kind == integer && v.number >= 0
}

// appendDraft07 appends the quota of draft 07, whose RateLimit is a Dictionary.
func appendDraft07(quotas []Quota, policyLines, limitLines []string) []Quota {
	all, ok := dictionary(limitLines)
	if !ok {
		return quotas
	}
	q := unknown
	for _, m := range all {
		n := m.number
		if m.kind != integer || n < 0 {
			n = -1
		}
		switch m.key {
		case "limit":
			if q.Limit = n; n < 0 {
				return quotas // there is no limit
			}
		case "remaining":
			q.Remaining = n
		case "reset":
			q.Reset = ofSeconds(max(0, n))
		}
	}
	if !q.told() {
		return quotas
	}
	q.Window = windowOf(policyLines, q.Limit)
	return append(quotas, q)
}

// windowOf returns the window of the given limit in a List of limits, or 0.
func windowOf(lines []string, limit int64) time.Duration {
	all, _ := list(lines)
	for i := range all {
		w, found := all[i].get("w")
		if found && all[i].kind == integer && all[i].number == limit && w.kind == integer {
			return ofSeconds(max(0, w.number))
		}
	}
	return 0
}
