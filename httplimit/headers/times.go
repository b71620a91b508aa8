package headers

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RetryAfter returns how long the client should wait, from the field Retry-After of an answer (RFC
// 9110, section 10.2.3): a number of seconds, or an HTTP date. It returns false if the field is
// missing or malformed. A date is compared with the Date of the answer or, without one, with now;
// RetryAfter returns 0 if it is over.
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

// sent returns when the answer was sent, on the clock of its server, so that the client's clock
// does not matter. Without a Date it returns now.
func sent(h http.Header, now time.Time) time.Time {
	if s, ok := single(h["Date"]); ok {
		if at, err := http.ParseTime(s); err == nil {
			return at
		}
	}
	return now
}

// A reset below firstSecond is in seconds from now. From firstSecond on it is in seconds since the
// Unix epoch, from firstMilli on in milliseconds, and from endMilli on it is malformed. Taken as
// seconds from now, firstSecond would be 28 years.
const (
	firstSecond = 900_000_000
	firstMilli  = 1000 * firstSecond
	endMilli    = 1000 * firstMilli
)

// reset returns the time from now until a reset, or 0 if that is over or malformed.
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
	} else if t, err := time.Parse("2006-01-02T15:04Z07:00", s); err == nil { // Atlassian's
		at = t
	}
	return max(0, at.Sub(now))
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

// ofSeconds returns n seconds, or the longest Duration. n is not negative.
func ofSeconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Second))) * time.Second
}
