package rules

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/driver"
)

// rate reads max of a limit with an algorithm.
func (f *file) rate(n *yaml.Node, algorithm string) Rate {
	text, ok := f.scalar(n, "max")
	switch {
	case !ok:
		return Rate{}
	case text == "unlimited":
		return Rate{Unlimited: true}
	}
	switch cmp.Or(algorithm, "log") {
	case algorithms.Block:
		return Rate{Window: f.duration(n, "max of a block")}
	case algorithms.Week, algorithms.Month, algorithms.Quarter, algorithms.InFlight:
		return f.units(n, algorithm)
	case unknown:
		return Rate{}
	}
	if text == "0" {
		return Rate{}
	}
	limit, err := driver.ParseLimit(text)
	units, window, _ := strings.Cut(text, "/")
	switch {
	case algorithms.IsCalendar(window):
		f.Add(n, "write max: %s and algorithm: %s", units, window)
	case strings.HasPrefix(text, "0/"):
		f.Add(n, "write max: 0 to admit nothing")
	case strings.Contains(text, "="):
		f.Add(n, "max is of the form MAX/WINDOW, such as 1000/1m, without a name")
	case err != nil:
		f.Add(n, "max: %s", textOf(err))
	}
	return Rate{Units: limit.Max, Window: limit.Window}
}

// units reads max without a window, or with that of the calendar's name.
func (f *file) units(n *yaml.Node, algorithm string) Rate {
	text := n.Value
	if algorithms.IsCalendar(algorithm) {
		text = strings.TrimSuffix(text, "/"+algorithm)
	}
	units, err := strconv.ParseInt(text, 10, 64)
	if err != nil || units < 0 || units > driver.MaxUnits {
		f.Add(n, "max of %s is an integer from 0 to %d, without a window, not %q", algorithm,
			driver.MaxUnits, n.Value)
	}
	return Rate{Units: units}
}

// duration reads a duration of the form of a window, such as 60s or 7d.
func (f *file) duration(n *yaml.Node, what string) time.Duration {
	text, ok := f.scalar(n, what)
	if !ok {
		return 0
	}
	limit, err := driver.ParseLimit("1/" + text)
	if err != nil {
		f.Add(n, "%s is a duration such as 500ms, 60s, 24h or 7d, from %v to %v, not %q", what,
			driver.MinWindow, driver.MaxWindow, text)
	}
	return limit.Window
}

// ParseLease returns the share of a limit that may go unused: 0.02 for 2%.
func ParseLease(text string) (float64, error) {
	number, isPercent := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if !isPercent || err != nil || !(percent >= 0 && percent <= 10) {
		return 0, fmt.Errorf("a percentage such as 2%%, from 0%% to 10%%, not %q", text)
	}
	return percent / 100, nil
}

// percent reads a share such as 80%.
func (f *file) percent(n *yaml.Node, what string) float64 {
	text, ok := f.scalar(n, what)
	if !ok {
		return 0
	}
	number, isPercent := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if !isPercent || err != nil || !(percent > 0 && percent <= 100) {
		f.Add(n, "%s is a percentage such as 80%%, above 0%% and at most 100%%, not %q", what, text)
		return 0
	}
	return percent / 100
}
