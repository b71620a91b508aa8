package replay

import (
	"strconv"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// maxInstant is the first instant that algorithms no longer accept, in the year 2112.
const maxInstant = int64(1) << 52 // µs

// clock reads times. It remembers the last date, since the next one is usually the same.
type clock struct {
	date     [11]byte
	midnight int64 // of that date in UTC, in seconds since the Unix epoch
}

const accessDate = "02/Jan/2006"

// read reads a time as access logs and programs write it:
//
//	10/Oct/2000:13:55:36 -0700
//	2000-10-10T13:55:36.123-07:00
//
// A space may replace the T or the colon after the date, a comma the decimal point. Digits below a
// microsecond are cut off. A time without a zone is UTC.
func (c *clock) read(b []byte) (at int64, ok bool) {
	layout := time.DateOnly
	if len(b) > 2 && b[2] == '/' {
		layout = accessDate
	}
	n := len(layout)
	if len(b) < n+len("T15:04:05") || !c.setDate(b[:n], layout) {
		return 0, false
	}
	switch b[n] {
	case 'T', 't', ' ', ':':
	default:
		return 0, false
	}
	seconds, ok := timeOfDay(b[n+1 : n+9])
	if !ok {
		return 0, false
	}
	micros, zone := int64(0), b[n+9:]
	if len(zone) > 0 && (zone[0] == '.' || zone[0] == ',') {
		n := countDigits(zone[1:])
		if micros, zone = fraction(zone[1:1+n]), zone[1+n:]; n == 0 {
			return 0, false
		}
	}
	if len(zone) > 1 && zone[0] == ' ' {
		zone = zone[1:]
	}
	offset, ok := zoneOffset(zone)
	at = (c.midnight+seconds-offset)*1e6 + micros
	return at, ok && at >= 0 && at < maxInstant
}

// zoneOffset returns the seconds east of Greenwich of a zone such as -07:00, -0700, -07 or Z.
func zoneOffset(zone []byte) (seconds int64, ok bool) {
	switch string(zone) {
	case "", "Z", "z", "UTC", "GMT":
		return 0, true
	}
	n := len(zone)
	minutes, okMinutes := int64(0), n == 3
	if n == 5 || n == 6 && zone[3] == ':' {
		minutes, okMinutes = digits(zone[n-2:])
	}
	if !okMinutes || zone[0] != '+' && zone[0] != '-' {
		return 0, false
	}
	hours, ok := digits(zone[1:3])
	if seconds = hours*3600 + minutes*60; zone[0] == '-' {
		seconds = -seconds
	}
	return seconds, ok && hours < 24 && minutes < 60
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
		if n > driver.MaxUnits {
			return 0, errBadUnits
		}
		return n, nil
	}
	if len(b) == 1 && b[0] == '-' {
		return 0, nil
	}
	f, err := strconv.ParseFloat(string(b), 64)
	n := int64(f)
	if err != nil || f < 0 || f > float64(driver.MaxUnits) || float64(n) != f {
		return 0, errBadUnits
	}
	return n, nil
}
