package dashboard

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// number returns n such as 1,256,222.
func number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// perSecond returns a rate such as 1,240/s or 0.3/s.
func perSecond(n int64, seconds int) string {
	return short(float64(n)/float64(max(seconds, 1))) + "/s"
}

// short returns v with a digit after the point where it is below 10, and two below 1.
func short(v float64) string {
	digits := 0
	switch {
	case v >= 9.95 || v == math.Trunc(v):
		return number(int64(math.Round(v)))
	case v >= 0.995:
		digits = 1
	default:
		digits = 2
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if text == "0.00" {
		return "<0.01"
	}
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// compact returns a number for an axis, such as 1.5M.
func compact(v float64) string {
	for _, u := range []struct {
		of   float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= max(u.of, 1e4) {
			return short(v/u.of) + u.name
		}
	}
	return short(v)
}

// percent returns a share such as 3.1 %. What is not 0 is not shown as 0, and what is not all is
// not shown as all.
func percent(part, whole int64) string {
	share := 100 * float64(part) / float64(max(whole, 1))
	switch {
	case part == 0:
		return "0 %"
	case share < 0.1:
		return "<0.1 %"
	case part != whole && share > 99.5:
		return ">99 %"
	case share < 9.95:
		return strings.TrimSuffix(strconv.FormatFloat(share, 'f', 1, 64), ".0") + " %"
	}
	return strconv.FormatFloat(share, 'f', 0, 64) + " %"
}

// units of time, the longest first.
var timeUnits = []struct {
	length time.Duration
	name   string
}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}}

// length returns a duration such as 16 s or 2 h 5 min, rounded up, so that it is never too short.
func length(d time.Duration) string {
	if d < 10*time.Second {
		tenths := (d + 100*time.Millisecond - 1) / (100 * time.Millisecond)
		return strings.TrimSuffix(fmt.Sprintf("%d.%d", tenths/10, tenths%10), ".0") + " s"
	}
	exact := time.Second
	switch {
	case d >= 24*time.Hour:
		exact = time.Hour
	case d >= time.Hour:
		exact = time.Minute
	}
	d = (d + exact - 1) / exact * exact
	var parts []string
	for _, u := range timeUnits {
		if n := d / u.length; n > 0 && u.length >= exact {
			parts = append(parts, fmt.Sprintf("%d %s", n, u.name))
		}
		d %= u.length
	}
	return strings.Join(parts, " ")
}

// inWindow returns what a window is after a number, such as "a minute" or "in 10 min".
func inWindow(d time.Duration) string {
	switch d {
	case time.Second:
		return "a second"
	case time.Minute:
		return "a minute"
	case time.Hour:
		return "an hour"
	case 24 * time.Hour:
		return "a day"
	case 7 * 24 * time.Hour:
		return "a week"
	}
	if d < time.Second {
		return "in " + d.String()
	}
	return "in " + length(d)
}

// Words returns the limit of an algorithm as people say it, such as "600 a minute" or "5 at once".
func Words(a ratelimit.Algorithm) string { return inWords(a.Limit(), a) }

// inWords returns a limit such as "600 a minute" or "5 at once". The algorithm is nil where only
// the limit is known, as that of a trial.
func inWords(limit ratelimit.Limit, a ratelimit.Algorithm) string {
	max := number(limit.Max)
	switch a := a.(type) {
	case algorithm.Block:
		return "blocks a key for at most " + length(limit.Window)
	case algorithm.Bucket:
		if limit.Window%time.Second != 0 { // of a burst and a rate
			return fmt.Sprintf("%s a second, %s at once",
				short(float64(limit.Max)/limit.Window.Seconds()), max)
		}
	case algorithm.Held:
		if a.InFlight() {
			return max + " at once"
		}
		return inWords(limit, a.Inside())
	case algorithm.Fixed:
		text := strings.TrimPrefix(a.String(), limit.Name+"=")
		if _, rest, ok := strings.Cut(text, " a "); ok { // a month, a quarter
			return max + " a " + rest
		}
	}
	return max + " " + inWindow(limit.Window)
}

// instant is a time in the text of a program.
var instant = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// sinceInstant is what the title leaves out.
var sinceInstant = regexp.MustCompile(` since ` + instant.String())

// prose returns a text with its times as elements, which the script shows in the viewer's zone.
func prose(s string) template.HTML {
	escaped := html.EscapeString(text(s))
	return template.HTML(instant.ReplaceAllStringFunc(escaped, func(at string) string {
		t, err := time.Parse(time.RFC3339, at)
		if err != nil {
			return at
		}
		return string(clock(t, false))
	}))
}

// clock returns a time of a day, with its seconds if they matter.
func clock(t time.Time, seconds bool) template.HTML {
	t = t.UTC()
	shown := t.Format("15:04") + " UTC"
	if seconds {
		shown = t.Format(time.TimeOnly) + " UTC"
	}
	if time.Since(t).Abs() > 12*time.Hour {
		shown = t.Format(time.DateOnly) + " " + shown
	}
	return template.HTML(`<time datetime="` + t.Format("2006-01-02T15:04:05Z") + `">` + shown +
		"</time>")
}
