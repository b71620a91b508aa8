package lua

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// failedPart is the part of the first demand of a group that failed with a text.
func failedPart(text string, flags int64) string {
	return packed(replyFailed|flags, 0, int64(len(text)), 0, 0) + text
}

// TestFailedGroups reads replies in which some groups have failed. The others are answered, and the
// error of a failed group reports whether it may have been recorded.
func TestFailedGroups(t *testing.T) {
	d := driver.Demand{Key: "k",
		Algorithm: algorithm.SlidingLog(driver.PerMinute("minute", 9)), N: 2}
	var c Run
	c.Begin(0)
	for _, err := range []error{
		c.Add([]string{"a"}, []driver.Demand{d}),
		c.Add([]string{"b", "c"}, []driver.Demand{d, d}),
		c.AddSame("d", d, 5),
		c.Add([]string{"e", "f"}, []driver.Demand{d, d}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	count := func(n int64) string { return string(appendInt(nil, n, replyInt)) }
	parts := []string{
		failedPart("ERR planted", 0),
		failedPart("", replyWrote) + packed(replyFailed, 0, 0, 0, 0),
		count(2) + packed(0, 5, 0, 60, 7) + count(3) +
			failedPart(strings.Repeat("x", 200), replyWrote),
		packed(0, 7, 0, 60, 7) + packed(0, 3, 0, 60, 7),
	}
	reply := strings.Join(parts, "")
	for group, want := range []struct {
		text    string
		failed  bool
		unknown bool
		limits  []int64 // of the results
	}{
		{"ERR planted", true, false, []int64{0}},
		{"", true, true, []int64{0, 0}},
		{strings.Repeat("x", 200), true, true, []int64{9, 9, 0, 0, 0}},
		{"", false, false, []int64{9, 9}},
	} {
		out := make([]driver.Result, len(want.limits))
		err := c.Results(reply, group, out)
		var failed *StepError
		if errors.As(err, &failed) != want.failed || want.failed && failed.Text != want.text {
			t.Errorf("group %d: %v", group, err)
		}
		if errors.Is(err, driver.ErrUnavailable) != want.failed ||
			errors.Is(err, driver.ErrOutcomeUnknown) != want.unknown {
			t.Errorf("group %d: %v has the wrong kind", group, err)
		}
		var limits []int64
		for _, res := range out {
			limits = append(limits, res.Limit.Max)
		}
		if !slices.Equal(limits, want.limits) {
			t.Errorf("group %d: limits %v, want %v", group, limits, want.limits)
		}
	}
	for what, foreign := range map[string]string{
		"text too short": strings.Replace(reply, "planted", "plante", 1),
		"text too long":  reply + "x",
		"length beyond":  packed(replyFailed, 0, 1<<40, 0, 0) + strings.Join(parts[1:], ""),
	} {
		if err := c.Results(foreign, 3, make([]driver.Result, 2)); !errors.Is(err,
			driver.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// throwing is an algorithm whose Args panics.
type throwing struct{ algorithm.Log }

func (throwing) Script() driver.Script {
	return driver.Script{Name: "throwing", Source: "local function step() end",
		Args: func([]int64, driver.Demand) []int64 { panic("planted") }}
}

// TestAddLeavesNothing: a group that cannot be added leaves the call as it was.
func TestAddLeavesNothing(t *testing.T) {
	good := driver.Demand{Key: "k",
		Algorithm: algorithm.SlidingLog(driver.PerMinute("minute", 9)), N: 2}
	with := func(add func(*Run)) (args, keys []string, source string) {
		var c Run
		c.Begin(1)
		for _, key := range []string{"a", "b"} {
			if err := c.Add([]string{key}, []driver.Demand{good}); err != nil {
				t.Fatal(err)
			}
			add(&c)
		}
		return c.Args(), c.Keys(), c.Program().Source
	}
	args, keys, source := with(func(*Run) {})
	for what, add := range map[string]func(*Run) error{
		"no script": func(c *Run) error {
			return c.Add([]string{"x", "y"},
				[]driver.Demand{good, {Key: "k", Algorithm: scriptless{}, N: 1}})
		},
		"panic": func(c *Run) (err error) {
			defer func() { err, _ = errors.ErrUnsupported, recover() }()
			return c.Add([]string{"x", "y"},
				[]driver.Demand{good, {Key: "k", Algorithm: throwing{}, N: 1}})
		},
		"panic of equal takes": func(c *Run) (err error) {
			defer func() { err, _ = errors.ErrUnsupported, recover() }()
			return c.AddSame("x", driver.Demand{Key: "k", Algorithm: throwing{}, N: 1}, 3)
		},
	} {
		gotArgs, gotKeys, gotSource := with(func(c *Run) {
			if err := add(c); err == nil {
				t.Errorf("%s: no error", what)
			}
		})
		if !slices.Equal(gotArgs, args) || !slices.Equal(gotKeys, keys) || gotSource != source {
			t.Errorf("%s: the call has changed", what)
		}
	}
}
