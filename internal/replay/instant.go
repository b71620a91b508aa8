package replay

import (
	"strconv"
	"time"

	"github.com/truewindow/ratelimit"
)

// maxInstant is the first instant that algorithms no longer accept, in the year 2112.
const maxInstant = int64(1) << 52 // µs

// clock reads times. It remembers the last date, since the next one is usually the same.
type clock struct {
	date     [11]byte
	midnight int64 // of that date in UTC, in seconds since the Unix epoch
}

const (
	accessTime = "02/Jan/2006:15:04:05 -0700"
	zoneless   = len("2006-01-02T15:04:05")
)

// access reads a time of an access log, such as 10/Oct/2000:13:55:36 -0700.
func (c *clock) access(b []byte) (at int64, ok bool) {
	if len(b) != len(accessTime) || b[11] != ':' || b[20] != ' ' {
		return 0, false
	}
	if !c.setDate(b[:11], "02/Jan/2006") {
		return 0, false
	}
	seconds, ok := timeOfDay(b[12:20])
	if !ok {
		return 0, false
	}
	hours, ok1 := digits(b[22:24])
	minutes, ok2 := digits(b[24:26])
	return c.instant(seconds, 0, b[21], hours, minutes, ok1 && ok2)
}

// rfc3339 reads a time such as 2000-10-10T13:55:36.123-07:00. A space may replace the T. Digits
// below a microsecond are cut off.
func (c *clock) rfc3339(b []byte) (at int64, ok bool) {
	if len(b) <= zoneless || b[10] != 'T' && b[10] != 't' && b[10] != ' ' {
		return 0, false
	}
	if !c.setDate(b[:10], time.DateOnly) {
		return 0, false
	}
	seconds, ok := timeOfDay(b[11:zoneless])
	if !ok {
		return 0, false
	}
	micros, zone := int64(0), b[zoneless:]
	if zone[0] == '.' {
		n := countDigits(zone[1:])
		if micros, zone = fraction(zone[1:1+n]), zone[1+n:]; n == 0 {
			return 0, false
		}
	}
	if len(zone) == 1 && (zone[0] == 'Z' || zone[0] == 'z') {
		return c.instant(seconds, micros, '+', 0, 0, true)
	}
	if len(zone) != len("-07:00") || zone[3] != ':' {
		return 0, false
	}
	hours, ok1 := digits(zone[1:3])
	minutes, ok2 := digits(zone[4:])
	return c.instant(seconds, micros, zone[0], hours, minutes, ok1 && ok2)
}

// setDate sets midnight to that of a date.
func (c *clock) setDate(b []byte, layout string) bool {
	if string(b) == string(c.date[:len(b)]) {
		return true
	}
	t, err := time.Parse(layout, string(b))
	if err != nil || len(b) != len(layout) {
		return false
	}
	c.date = [11]byte{}
	copy(c.date[:], b)
	c.midnight = t.Unix()
	return true
}

// instant returns the instant so many seconds and microseconds after midnight in a time zone.
func (c *clock) instant(
	seconds, micros int64, sign byte, hours, minutes int64, ok bool,
) (at int64, _ bool) {
	if !ok || hours > 23 || minutes > 59 {
		return 0, false
	}
	offset := hours*3600 + minutes*60
	switch sign {
	case '+':
		offset = -offset
	case '-':
	default:
		return 0, false
	}
	at = (c.midnight+seconds+offset)*1e6 + micros
	return at, at >= 0 && at < maxInstant
}

// timeOfDay reads 13:55:36 as seconds.
func timeOfDay(b []byte) (seconds int64, ok bool) {
	h, ok1 := digits(b[:2])
	m, ok2 := digits(b[3:5])
	s, ok3 := digits(b[6:])
	return h*3600 + m*60 + s, ok1 && ok2 && ok3 && h < 24 && m < 60 && s < 60 &&
		b[2] == ':' && b[5] == ':'
}

// digits reads an integer without a sign.
func digits(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

func countDigits(b []byte) int {
	for i, c := range b {
		if c < '0' || c > '9' {
			return i
		}
	}
	return len(b)
}

// fraction returns the digits after a decimal point as millionths. Further digits are cut off.
func fraction(b []byte) (millionths int64) {
	for i := range 6 {
		millionths *= 10
		if i < len(b) {
			millionths += int64(b[i] - '0')
		}
	}
	return millionths
}

// unixTime reads a time since the Unix epoch. Its size determines the unit: seconds below 10^11,
// which is the year 5138, milliseconds below 10^14, microseconds below 10^17, else nanoseconds.
func unixTime(b []byte) (at int64, ok bool) {
	n := countDigits(b)
	if n == 0 || n > 19 {
		return 0, false
	}
	whole, err := strconv.ParseUint(string(b[:n]), 10, 63)
	if err != nil {
		return 0, false
	}
	micros := int64(0)
	switch rest := b[n:]; {
	case len(rest) == 0:
	case rest[0] == '.' && len(rest) > 1 && countDigits(rest[1:]) == len(rest)-1:
		micros = fraction(rest[1:])
	default:
		f, err := strconv.ParseFloat(string(b), 64)
		if err != nil || f < 0 || f >= 1<<63 {
			return 0, false
		}
		whole = uint64(f)
		micros = int64((f - float64(whole)) * 1e6)
	}
	at = int64(whole)
	switch {
	case at < 1e11:
		at = at*1e6 + micros
	case at < 1e14:
		at = at*1e3 + micros/1e3
	case at >= 1e17:
		at /= 1e3
	}
	return at, at < maxInstant
}

// parseUnits reads a number of units. A hyphen is 0, as in access logs.
func parseUnits(b []byte) (int64, error) {
	if n, ok := digits(b); ok && len(b) > 0 && len(b) < 19 {
		if n > ratelimit.MaxUnits {
			return 0, errBadUnits
		}
		return n, nil
	}
	if len(b) == 1 && b[0] == '-' {
		return 0, nil
	}
	f, err := strconv.ParseFloat(string(b), 64)
	n := int64(f)
	if err != nil || f < 0 || f > float64(ratelimit.MaxUnits) || float64(n) != f {
		return 0, errBadUnits
	}
	return n, nil
}
