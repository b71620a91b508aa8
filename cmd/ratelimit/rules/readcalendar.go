package rules

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/driver"
)

var weekdays = []string{
	"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday",
}

// calendar reads when the windows of a limit begin.
func (f *file) calendar(l *Limit, fields map[string]*yaml.Node) {
	l.Rate.Starts = f.starts(fields["starts"], l.Algorithm)
	n := fields["offset"]
	if n == nil {
		return
	}
	text, ok := f.scalar(n, "offset")
	if !ok {
		return
	}
	if !algorithms.IsFixed(l.Algorithm) && l.Algorithm != unknown {
		f.Add(n, "offset is for algorithm: fixed, week, month or quarter")
		return
	}
	number, negative := strings.CutPrefix(text, "-")
	limit, err := driver.ParseLimit("1/" + number)
	switch {
	case err != nil:
		f.Add(n, "offset is a duration such as 5h or -2h, not %q", text)
	case negative:
		l.Offset = -limit.Window
	default:
		l.Offset = limit.Window
	}
}

// starts reads the day on which windows begin; n may be nil.
func (f *file) starts(n *yaml.Node, algorithm string) int {
	if n == nil {
		return 0
	}
	text, ok := f.scalar(n, "starts")
	if !ok {
		return 0
	}
	day, err := ParseStarts(text, algorithm)
	if err != nil && algorithm != unknown {
		f.Add(n, "%v", err)
	}
	return day
}

// ParseStarts returns the day on which windows of an algorithm begin, as in [Rate].
func ParseStarts(text, algorithm string) (day int, err error) {
	switch algorithm {
	case algorithms.Week:
		if day = slices.Index(weekdays, text) + 1; day == 0 {
			return 0, fmt.Errorf("starts is a day from monday to sunday, not %q", text)
		}
	case algorithms.Month, algorithms.Quarter:
		if day, err = strconv.Atoi(text); err != nil || day < 1 || day > 31 {
			return 0, fmt.Errorf("starts is a day of the month from 1 to 31, not %q", text)
		}
	default:
		return 0, errors.New("starts is for algorithm: week, month or quarter")
	}
	return day, nil
}

// StartsText returns the text of which ParseStarts returns the day.
func StartsText(day int, algorithm string) string {
	if algorithm == algorithms.Week {
		return weekdays[day-1]
	}
	return strconv.Itoa(day)
}

// plan reads a rate of by: max alone, or with the day on which its windows begin.
func (f *file) plan(n *yaml.Node, algorithm string) Rate {
	if n.Kind != yaml.MappingNode {
		return f.rate(n, algorithm)
	}
	fields, _ := f.Fields(n, "a rate", "max", "starts")
	if fields["max"] == nil {
		f.Add(n, "the rate has no max")
		return Rate{}
	}
	rate := f.rate(fields["max"], algorithm)
	rate.Starts = f.starts(fields["starts"], algorithm)
	return rate
}
