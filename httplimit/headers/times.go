package headers

import (
	"math"
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RetryAfter returns how long the client should wait, from the field Retry-After of an answer (RFC
// 9110, section 10.2.3), and from Retry-After-Ms, X-Ms-Retry-After-Ms and X-Retry-After. It returns
// false if none of them has a value that it can read. The wait is 0 if a time is over. It is never
// shorter than the answer requires, and it has no bound: the caller sets one.
//
// RetryAfter reads more than servers should send. A value is one of these, in any case, and may
// have spaces, quotation marks or a plus sign around it, and parameters after it:
//   - A number of seconds, or of milliseconds if the name of the field ends in Ms, with or without
//     a fraction.
//   - A number of more than a year that is, as seconds, milliseconds, microseconds or nanoseconds
//     since the Unix epoch, within ten years of the answer. It is that time.
//   - A duration: 120s, 1m30s, 2 seconds, PT30S.
//   - A date of HTTP, RFC 3339, JavaScript or Unix. The weekday does not matter, and a date without
//     a zone is in UTC.
//
// Of several values, in one field or several, the longest wait counts. Values that are none of
// these, such as negative numbers, are ignored.
//
// Times are compared with the Date of the answer, if that is within a day of now, and otherwise
// with now. So the clocks of client and server may differ.
func RetryAfter(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	now = sent(h, now)
	for _, field := range [...]struct {
		name string
		unit time.Duration
	}{
		{"Retry-After", time.Second},
		{"Retry-After-Ms", time.Millisecond},
		{"X-Ms-Retry-After-Ms", time.Millisecond},
		{"X-Retry-After", time.Second},
	} {
		if w, found := longest(h[field.name], field.unit, now); found {
			wait, ok = max(wait, w), true
		}
	}
	return wait, ok
}

const day = 24 * time.Hour

// sent returns when the answer was sent: its Date, or now without a Date near now. TLS needs a
// clock that is right to about a day, so a Date that differs by more is wrong.
func sent(h http.Header, now time.Time) time.Time {
	if s, ok := single(h["Date"]); ok {
		if at, err := http.ParseTime(s); err == nil && at.Sub(now).Abs() <= day {
			return at
		}
	}
	return now
}

// longest returns the longest wait of the values of a field. Numbers are in unit.
func longest(lines []string, unit time.Duration, now time.Time) (wait time.Duration, ok bool) {
	for _, line := range lines[:min(len(lines), maxMembers)] {
		if len(line) > maxValue {
			continue
		}
		// Cutting a date at its comma leaves a weekday, which is not a value, and a date.
		for value := range strings.SplitSeq(line, ",") {
			value, _, _ = strings.Cut(value, ";")
			value = strings.TrimPrefix(strings.Trim(value, " \t\"'"), "+")
			if w, found := waitOf(value, unit, now); found {
				wait, ok = max(wait, w), true
			}
		}
	}
	return wait, ok
}

// waitOf returns the wait from now that s describes, or false.
func waitOf(s string, unit time.Duration, now time.Time) (time.Duration, bool) {
	if wait, ok := numberOf(s, unit); ok {
		if wait <= 366*day {
			return wait, true
		}
		for u := time.Second; u > 0; u /= 1000 {
			sinceEpoch, _ := numberOf(s, u)
			at := time.Unix(0, int64(sinceEpoch))
			if left := at.Sub(now); left.Abs() <= 3653*day {
				return max(0, left), true
			}
		}
		return wait, true
	}
	if wait, ok := durationOf(s); ok {
		return wait, true
	}
	at, ok := dateOf(s)
	return max(0, at.Sub(now)), ok
}

// numberOf returns a number of units, rounded up to a nanosecond, or the longest Duration. It
// returns false if s is not a number or is negative.
func numberOf(s string, unit time.Duration) (time.Duration, bool) {
	if !isDecimal(s) {
		// A floating-point number near 0 may be written as 5e-05.
		if s == "" || !isDigit(s[0]) || strings.Trim(s, "0123456789.eE+-") != "" {
			return 0, false
		}
		f, err := strconv.ParseFloat(s, 64)
		if f *= float64(unit); f >= math.MaxInt64 {
			return math.MaxInt64, true
		}
		return time.Duration(math.Ceil(f)), err == nil
	}
	whole, fraction, _ := strings.Cut(s, ".")
	high, low := bits.Mul64(uint64(leadingInt(whole)), uint64(unit))
	if high > 0 || low > math.MaxInt64-uint64(unit) {
		return math.MaxInt64, true
	}
	const digits, one = 9, 1_000_000_000
	billionths := leadingInt((fraction + "000000000")[:digits])
	if len(fraction) > digits && strings.Trim(fraction[digits:], "0") != "" {
		billionths++
	}
	high, part := bits.Mul64(uint64(billionths), uint64(unit))
	part, rest := bits.Div64(high, part, one)
	if rest > 0 {
		part++
	}
	return time.Duration(low + part), true
}

// durationOf reads numbers with units of time, such as 1m30s, 17ms, 2 seconds or PT30S. It returns
// the longest Duration if the sum is longer.
func durationOf(s string) (sum time.Duration, ok bool) {
	s = strings.TrimPrefix(strings.ToLower(s), "pt")
	for ; s != ""; s = strings.TrimLeft(s, " ") {
		n := len(s) - len(strings.TrimLeft(s, "0123456789."))
		digits, rest := s[:n], strings.TrimLeft(s[n:], " ")
		name := rest
		if end := strings.IndexAny(rest, " 0123456789."); end >= 0 {
			name = rest[:end]
		}
		s = rest[len(name):]
		unit := unitOf(name)
		wait, isNumber := numberOf(digits, unit)
		if !isNumber || unit == 0 {
			return 0, false
		}
		sum, ok = sum+min(wait, math.MaxInt64-sum), true
	}
	return sum, ok
}

// unitOf returns the unit of time with the given name, or 0.
func unitOf(name string) time.Duration {
	if len(name) > 2 {
		name = strings.TrimSuffix(name, "s")
	}
	switch name {
	case "ns":
		return time.Nanosecond
	case "us", "µs", "μs":
		return time.Microsecond
	case "ms", "msec", "millisecond":
		return time.Millisecond
	case "s", "sec", "second":
		return time.Second
	case "m", "min", "minute":
		return time.Minute
	case "h", "hr", "hour":
		return time.Hour
	case "d", "day":
		return day
	}
	return 0
}

// zones are the forms of a zone in a layout; dates are in UTC without one.
var zones = [...]string{"Z07:00", "Z0700", "Z07", ""}

// layouts are the forms of a date, in which Z stands for the zone.
var layouts = [...]string{
	"2006-01-02T15:04:05Z",
	"2 Jan 2006 15:04:05Z", // a date of HTTP without its weekday
	"2-Jan-06 15:04:05Z",
	"Mon Jan 2 15:04:05Z 2006",
	"2-Jan-2006 15:04:05Z",
	"2 Jan 06 15:04:05Z",
	"Mon Jan 2 2006 15:04:05Z",
	"2006-01-02 15:04:05Z",
	"2006-01-02T15:04Z",
}

var zoneNames = strings.NewReplacer(" +0000 UTC", "Z", // as Go writes it
	" GMT+", "+", " GMT-", "-", " UTC+", "+", " UTC-", "-",
	" GMT", "Z", " UTC", "Z", " +", "+", " -", "-", " Z", "Z")

// dateOf reads a date.
func dateOf(s string) (time.Time, bool) {
	s, _, _ = strings.Cut(strings.ToUpper(s), "(") // the name of the zone
	s = zoneNames.Replace(strings.Join(strings.Fields(s), " "))
	for _, layout := range layouts {
		for _, zone := range zones {
			at, err := time.Parse(strings.Replace(layout, "Z", zone, 1), s)
			if err == nil {
				return at, true
			}
		}
	}
	return time.Time{}, false
}

// ofSeconds returns n seconds, or the longest Duration. n is not negative.
func ofSeconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Second))) * time.Second
}
