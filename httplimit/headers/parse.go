package headers

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Parse returns what the fields of an answer say about the client's limits; now is the current
// time. The names in h must be canonical, as package net/http makes them. Parse reads:
//
//   - RateLimit-Policy and RateLimit of the drafts 08 to 11 of the Internet-Draft
//     draft-ietf-httpapi-ratelimit-headers, also with the prefix Beta-.
//   - RateLimit-Policy and RateLimit of draft 07.
//   - RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset of the drafts 00 to 06, and the same
//     with the prefixes X-RateLimit- and X-Rate-Limit-. The limit may have a list of windows ("10,
//     10;w=1"), as Envoy writes it. X-RateLimit-Resource is the name of the limit.
//   - X-RateLimit-Limit-Tokens and the like, with the name of the limit at the end, as OpenAI
//     writes them.
//   - Anthropic-RateLimit-Tokens-Limit and the like, with the name of the limit in the middle.
//   - Anthropic-RateLimit-Unified-Status, -5h-Status, -7d-Status and the like, as Anthropic sends
//     them to subscriptions. If the status is rejected and no paid overage is in its place, they
//     are a quota named unified with nothing left, until all windows that are used up begin again.
//
// A reset in a field of its own is what [RetryAfter] reads: a number of seconds, a time since the
// Unix epoch, a duration or a date. X-RateLimit-Reset-After takes precedence over
// X-RateLimit-Reset.
//
// A field whose limit is negative, empty or a word such as unlimited says that there is none: what
// remains of it and its reset are ignored. A limit of 0 is a quota as the others are, but servers
// also send it where no limit applies.
//
// Parse ignores a list that is malformed, longer than 8 KiB, or has more than 64 members, and other
// values of more than 128 bytes; of a limit in a field of its own, it then reads the number at the
// beginning. It returns no quotas for an answer from a cache (with an Age above 0), because its
// fields describe another request. If an answer has fields of several formats, Parse returns the
// quotas of all. The result is nil if there are none.
//
// If an answer has a Retry-After, it takes precedence over the Reset of a quota; see [RetryAfter].
func Parse(h http.Header, now time.Time) []Quota {
	if !hasAny(h) || units(h["Age"]) > 0 {
		return nil
	}
	now = sent(h, now)
	var quotas []Quota
	for _, prefix := range [...]string{"", "Beta-"} {
		quotas = appendLists(quotas, h[prefix+fieldPolicy], h[prefix+fieldRateLimit])
	}
	quotas = appendDraft07(quotas, h[fieldPolicy], h[fieldRateLimit])
	for _, prefix := range [...]string{"Ratelimit-", "X-Ratelimit-", "X-Rate-Limit-"} {
		quotas = appendSingle(quotas, h, prefix, now)
	}
	quotas = appendNamed(quotas, h, openAI, now)
	quotas = appendNamed(quotas, h, anthropic, now)
	return appendUnified(quotas, h, now)
}

// hasAny reports whether h has a field that may describe limits. Most answers have none.
func hasAny(h http.Header) bool {
	for field := range h {
		if strings.Contains(field, "Ratelimit") || strings.HasPrefix(field, "X-Rate-Limit-") {
			return true
		}
	}
	return false
}

// appendSingle appends the quota of the fields that begin with prefix and end with Limit, Remaining
// and Reset.
func appendSingle(quotas []Quota, h http.Header, prefix string, now time.Time) []Quota {
	q := unknown
	if q.Limit, q.Window = limitAndWindow(h[prefix+"Limit"]); isNone(h[prefix+"Limit"]) {
		return quotas
	}
	if w := windowOf(h[fieldPolicy], q.Limit); prefix == "Ratelimit-" && w > 0 {
		q.Window = w // of the drafts 03 to 06
	}
	q.Remaining = units(h[prefix+"Remaining"])
	var ok bool
	if q.Reset, ok = longest(h[prefix+"Reset-After"], time.Second, now); !ok {
		q.Reset, _ = longest(h[prefix+"Reset"], time.Second, now)
	}
	q.Name, _ = single(h[prefix+"Resource"])
	if !q.told() {
		return quotas
	}
	return append(quotas, q)
}

// limitAndWindow reads a limit, alone, before a List of limits and their windows, or before other
// text, such as 100/minute.
func limitAndWindow(lines []string) (limit int64, window time.Duration) {
	if all, ok := list(lines); ok && all[0].kind == integer && all[0].number >= 0 {
		return all[0].number, windowOf(lines, all[0].number)
	}
	if s := limitText(lines); s != "" && isDigit(s[0]) {
		return leadingInt(s), 0
	}
	return -1, 0
}

// isNone reports whether the field of a limit is there and has no number, so that there is no
// limit.
func isNone(lines []string) bool {
	if len(lines) == 0 {
		return false
	}
	s := limitText(lines)
	return s == "" || !isDigit(s[0])
}

func limitText(lines []string) string {
	if len(lines) == 0 || len(lines[0]) > maxFieldBytes {
		return ""
	}
	return strings.TrimLeft(lines[0], " \t\"'+")
}

// around returns the parts of the name of a field before and after the name of a quota; word is
// Limit, Remaining or Reset.
type around func(word string) (prefix, suffix string)

func openAI(word string) (prefix, suffix string)    { return "X-Ratelimit-" + word + "-", "" }
func anthropic(word string) (prefix, suffix string) { return "Anthropic-Ratelimit-", "-" + word }

// appendNamed appends the quotas whose names are part of the names of the fields, sorted by name.
func appendNamed(quotas []Quota, h http.Header, around around, now time.Time) []Quota {
	var names []string
	for _, word := range [...]string{"Limit", "Remaining"} {
		prefix, suffix := around(word)
		for field := range h {
			name, begins := strings.CutPrefix(field, prefix)
			name, ends := strings.CutSuffix(name, suffix)
			if begins && ends && name != "" && len(name) <= maxValue && !isUnified(field) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names[:min(len(names), maxMembers)] {
		lines := func(word string) []string {
			prefix, suffix := around(word)
			return h[prefix+name+suffix]
		}
		if isNone(lines("Limit")) {
			continue
		}
		q := Quota{Name: strings.ToLower(name), Remaining: units(lines("Remaining"))}
		q.Limit, _ = limitAndWindow(lines("Limit"))
		q.Reset, _ = longest(lines("Reset"), time.Second, now)
		if q.told() {
			quotas = append(quotas, q)
		}
	}
	return quotas
}

// maxValue bounds the length of a value that is not a List, in bytes.
const maxValue = 128

// single returns the value of a field with one line, or false if there is no such line, or it is
// empty or longer than maxValue.
func single(lines []string) (string, bool) {
	if len(lines) != 1 {
		return "", false
	}
	s := strings.Trim(lines[0], " \t")
	return s, s != "" && len(s) <= maxValue
}

// units returns a number of units, without its fraction and parameters, or -1 if the field is not
// one. Docker Hub writes 76;w=21600.
func units(lines []string) int64 {
	s, ok := single(lines)
	s, _, _ = strings.Cut(s, ";")
	s = strings.TrimPrefix(strings.Trim(s, " \t\"'"), "+")
	if !ok || !isDecimal(s) {
		return -1
	}
	return leadingInt(s)
}

// leadingInt returns the digits at the beginning of s as a number, or the largest int64.
func leadingInt(s string) int64 {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	i, _ := strconv.ParseInt(s[:n], 10, 64) // the largest int64 if it is out of range
	return i
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// isDecimal reports whether s is digits, with or without a decimal point.
func isDecimal(s string) bool {
	whole, fraction, _ := strings.Cut(s, ".")
	return isDigits(whole + fraction)
}
