package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/driver"
)

// Mismatch says why a limit without a Domain does not apply to a request: the first condition that
// does not match. It is empty if the limit applies.
func (l *Limit) Mismatch(domain string, d Descriptor) string {
	if l.ByName {
		return "only claims that name it meet it"
	}
	if _, ok := d.Value(domainEntry); !ok && domain != "" {
		d = append(slices.Clone(d), Entry{Name: domainEntry, Value: domain})
	}
	for _, c := range l.When {
		i := slices.IndexFunc(d, func(e Entry) bool { return e.Name == c.Entry })
		switch {
		case i < 0:
			return plain(c.Entry) + " is missing"
		case !c.matches(&d[i]):
			return fmt.Sprintf("%s is %s, not %s", plain(c.Entry), plain(d[i].Value), c.pattern())
		}
	}
	for _, name := range l.Key {
		if _, ok := d.Value(name); !ok {
			return plain(name) + " is missing, which is in the key"
		}
	}
	return ""
}

// RateText returns the rate in the form of a file, such as 10/1m0s, 24h0m0s for a block, unlimited,
// or 0.
func (v *Variant) RateText() string {
	switch {
	case v.Rate.Unlimited:
		return "unlimited"
	case v.Limit.Algorithm == algorithms.Block:
		return v.Rate.Window.String()
	case algorithms.IsCalendar(v.Limit.Algorithm) && v.Rate.Units > 0:
		return v.calendarText() + v.offsetText()
	case v.Rate.Units == 0, v.Limit.Algorithm == algorithms.InFlight:
		return strconv.FormatInt(v.Rate.Units, 10)
	}
	return driver.Limit{Max: v.Rate.Units, Window: v.Rate.Window}.String() + v.offsetText()
}

func (v *Variant) offsetText() string {
	if v.Limit.Offset == 0 {
		return ""
	}
	return " offset " + v.Limit.Offset.String()
}

// calendarText returns a rate such as 1000/week@tuesday or 1000/month@15.
func (v *Variant) calendarText() string {
	text := strconv.FormatInt(v.Rate.Units, 10) + "/" + v.Limit.Algorithm
	starts := cmp.Or(v.Rate.Starts, v.Limit.Rate.Starts, 1)
	if starts == 1 {
		return text
	}
	return text + "@" + StartsText(starts, v.Limit.Algorithm)
}

// LeaseText returns the lease in the form of a file, such as 2%, or "" without one of its own.
func (l *Limit) LeaseText() string {
	if l.Lease == nil {
		return ""
	}
	return strconv.FormatFloat(*l.Lease*100, 'g', 6, 64) + "%"
}

// plain returns a text for one line: quoted, if it is empty or has characters that do not print.
func plain(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsPrint(r) || r == unicode.ReplacementChar
	}) {
		return strconv.Quote(s)
	}
	return s
}
