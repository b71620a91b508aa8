package headers

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Parse returns what the fields of an answer say about the client's limits. It reads:
//
//   - RateLimit-Policy and RateLimit of the drafts 08 to 11 of the Internet-Draft
//     draft-ietf-httpapi-ratelimit-headers, also with the prefix Beta-.
//   - RateLimit of draft 07: limit, remaining and reset.
//   - RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset of the drafts 00 to 06, and the same
//     with the prefixes X-RateLimit- and X-Rate-Limit-. The limit may have a list of windows
//     ("10, 10;w=1"), as Envoy writes it. X-RateLimit-Resource is the name of the limit.
//   - X-RateLimit-Limit-Tokens and the like: one quota for each name at the end. OpenAI has
//     requests and tokens.
//   - Anthropic-RateLimit-Tokens-Limit and the like, with the name in the middle.
//
// A reset is a number of seconds from now, a number of seconds or milliseconds since the Unix
// epoch, a date of HTTP or of RFC 3339, or a duration such as 6m0s. Numbers from 900,000,000 on are
// since the epoch. X-RateLimit-Reset-After is in seconds and comes before X-RateLimit-Reset.
// Dates count from the Date of the answer or, without one, from now.
//
// A malformed field is ignored, and so is one of more than 8 KiB or 64 members. An answer out of a
// cache, with an Age above 0, has no quotas, since its fields tell of another request. If an answer
// has several forms, Parse returns the quotas of all. The result is nil if there is none.
//
// [RetryAfter] has precedence over the Reset of a quota.
func Parse(h http.Header, now time.Time) []Quota {
	if units(h["Age"]) > 0 {
		return nil
	}
	now = sent(h, now)
	var quotas []Quota
	for _, prefix := range [...]string{"", "Beta-"} {
		quotas = appendLists(quotas, h[prefix+fieldPolicy], h[prefix+fieldRateLimit])
	}
	quotas = appendDraft07(quotas, h[fieldRateLimit])
	for _, prefix := range [...]string{"Ratelimit-", "X-Ratelimit-", "X-Rate-Limit-"} {
		quotas = appendSingle(quotas, h, prefix, now)
	}
	return appendNamed(quotas, h, now)
}

// appendLists appends the quotas of the drafts 08 to 11.
func appendLists(quotas []Quota, policyLines, limitLines []string) []Quota {
	policies := policiesOf(policyLines)
	limits, ok := list(limitLines)
	if !ok || !slices.ContainsFunc(limits, isNamed) {
		limits = nil
	}
	for i := range limits {
		if !isNamed(limits[i]) || !natural(&limits[i], "r", true) || !natural(&limits[i], "t", false) {
			limits = nil
			break
		}
	}
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

// policy is a quota of RateLimit-Policy, with nothing said about what remains.
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
		if !isNamed(*m) || !natural(m, "q", true) || !natural(m, "w", false) {
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

// natural reports whether a parameter is an Integer that is not negative, or missing if it need not
// be there.
func natural(m *member, key string, required bool) bool {
	v, found := m.get(key)
	return !found && !required || found && v.kind == integer && v.number >= 0
}

// appendDraft07 appends the quota of draft 07, whose RateLimit is a Dictionary.
func appendDraft07(quotas []Quota, lines []string) []Quota {
	all, ok := dictionary(lines)
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
			q.Limit = n
		case "remaining":
			q.Remaining = n
		case "reset":
			q.Reset = ofSeconds(max(0, n))
		}
	}
	if !q.told() {
		return quotas
	}
	return append(quotas, q)
}

// appendSingle appends the quota of the fields that begin with prefix and end with Limit, Remaining
// and Reset.
func appendSingle(quotas []Quota, h http.Header, prefix string, now time.Time) []Quota {
	q := unknown
	q.Limit, q.Window = limitAndWindow(h[prefix+"Limit"])
	if w := windowOf(h[fieldPolicy], q.Limit); prefix == "Ratelimit-" && w > 0 {
		q.Window = w // of the drafts 03 to 06
	}
	q.Remaining = units(h[prefix+"Remaining"])
	if after, ok := decimalSeconds(h[prefix+"Reset-After"]); ok {
		q.Reset = after
	} else {
		q.Reset = reset(h[prefix+"Reset"], now)
	}
	q.Name, _ = single(h[prefix+"Resource"])
	if !q.told() {
		return quotas
	}
	return append(quotas, q)
}

// limitAndWindow reads a limit, alone or before a List of limits and their windows.
func limitAndWindow(lines []string) (limit int64, window time.Duration) {
	all, ok := list(lines)
	if !ok || all[0].kind != integer || all[0].number < 0 {
		return -1, 0
	}
	return all[0].number, windowOf(lines, all[0].number)
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

// appendNamed appends the quotas whose names are part of the names of the fields, in the order of
// these names.
func appendNamed(quotas []Quota, h http.Header, now time.Time) []Quota {
	var names []string // of the fields of limits and of what remains, without these words
	for field := range h {
		for _, word := range [...]string{"Limit", "Remaining"} {
			if rest, ok := strings.CutPrefix(field, "X-Ratelimit-"+word+"-"); ok {
				names = append(names, "X-Ratelimit-*-"+rest)
			}
			if rest, ok := strings.CutPrefix(field, "Anthropic-Ratelimit-"); ok {
				if rest, ok = strings.CutSuffix(rest, "-"+word); ok {
					names = append(names, "Anthropic-Ratelimit-"+rest+"-*")
				}
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names[:min(len(names), maxMembers)] {
		field := func(word string) []string { return h[strings.Replace(name, "*", word, 1)] }
		q := unknown
		q.Name = strings.TrimPrefix(name, "X-Ratelimit-*-")
		q.Name = strings.TrimPrefix(q.Name, "Anthropic-Ratelimit-")
		q.Name = strings.ToLower(strings.TrimSuffix(q.Name, "-*"))
		q.Limit, q.Remaining = units(field("Limit")), units(field("Remaining"))
		q.Reset = reset(field("Reset"), now)
		if q.told() && len(q.Name) <= maxValue {
			quotas = append(quotas, q)
		}
	}
	return quotas
}

// RetryAfter returns how long from now on the answer asks the client to wait, 0 if that is over. It
// returns false without Retry-After (RFC 9110, section 10.2.3), which is a number of seconds or a
// date of HTTP, and if that is malformed. A date counts from the Date of the answer or, without
// one, from now.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	s, ok := single(h["Retry-After"])
	if !ok {
		return 0, false
	}
	if isDigits(s) {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			n = math.MaxInt64
		}
		return ofSeconds(n), true
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0, false
	}
	return max(0, at.Sub(sent(h, now))), true
}

// sent returns when the answer was sent by the clock of its server, so that it does not matter if
// the client's differs. Without a Date it is now.
func sent(h http.Header, now time.Time) time.Time {
	if s, ok := single(h["Date"]); ok {
		if at, err := http.ParseTime(s); err == nil {
			return at
		}
	}
	return now
}

// The least numbers of a reset that are since the Unix epoch: seconds, milliseconds, and neither.
// As a number of seconds from now the first would be decades.
const (
	firstSecond = 900_000_000
	firstMilli  = 1000 * firstSecond
	endMilli    = 1000 * firstMilli
)

// reset returns how long from now on the time of a reset is, or 0.
func reset(lines []string, now time.Time) time.Duration {
	s, ok := single(lines)
	if !ok {
		return 0
	}
	at := now
	if n := leadingInt(s); isDecimal(s) {
		after, _ := decimalSeconds(lines)
		switch {
		case n >= endMilli:
		case n >= firstMilli:
			at = time.UnixMilli(n)
		case n >= firstSecond:
			at = time.Unix(0, 0).Add(after)
		default:
			return after
		}
	} else if d, err := time.ParseDuration(s); err == nil {
		return max(0, d)
	} else if t, err := http.ParseTime(s); err == nil {
		at = t
	} else if t, err := time.Parse(time.RFC3339, s); err == nil {
		at = t
	}
	return max(0, at.Sub(now))
}

// maxValue bounds the length of a value that is not a List, in bytes.
const maxValue = 64

// single returns the value of a field with one line, or false if there is none or it is longer than
// any that is well formed.
func single(lines []string) (string, bool) {
	if len(lines) != 1 {
		return "", false
	}
	s := strings.Trim(lines[0], " \t")
	return s, s != "" && len(s) <= maxValue
}

// units returns a number of units, without its fraction, or -1 if the field is not one.
func units(lines []string) int64 {
	if s, ok := single(lines); ok && isDecimal(s) {
		return leadingInt(s)
	}
	return -1
}

// decimalSeconds returns a number of seconds, which may have a fraction.
func decimalSeconds(lines []string) (time.Duration, bool) {
	s, ok := single(lines)
	if !ok || !isDecimal(s) {
		return 0, false
	}
	whole, fraction, _ := strings.Cut(s, ".")
	nanos, _ := strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
	d := ofSeconds(leadingInt(whole))
	return d + min(time.Duration(nanos), math.MaxInt64-d), true
}

// leadingInt returns the digits at the begin of s as a number, the largest for one that is larger.
func leadingInt(s string) int64 {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	i, _ := strconv.ParseInt(s[:n], 10, 64) // the largest if it is out of range
	return i
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// isDecimal reports whether s has digits, and perhaps a fraction after them.
func isDecimal(s string) bool {
	whole, fraction, cut := strings.Cut(s, ".")
	return isDigits(whole) && (!cut || isDigits(fraction))
}

// ofSeconds returns n seconds, or the longest Duration. n is not negative.
func ofSeconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Second))) * time.Second
}
