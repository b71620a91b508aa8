package config

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// TestLimitFlag: a limit of a command line counts in any window, or in those of the calendar.
func TestLimitFlag(t *testing.T) {
	for text, want := range map[string]struct {
		algorithm ratelimit.Algorithm
		text      string
	}{
		"5/1m":     {algorithm.SlidingLog(ratelimit.PerMinute("1m0s", 5)), "1m0s=5/1m0s"},
		"a=b=5/1m": {algorithm.SlidingLog(ratelimit.PerMinute("a=b", 5)), "a=b=5/1m0s"},
		"a/week@x=10/1m": {algorithm.SlidingLog(ratelimit.PerMinute("a/week@x", 10)),
			"a/week@x=10/1m0s"},
		"5/month":         {algorithm.Monthly("month", 5), "month=5/month"},
		"a=5/month@31":    {algorithm.Monthly("a", 5).WithDay(31), "a=5/month@31"},
		"a=5/quarter@2":   {algorithm.Quarterly("a", 5).WithDay(2), "a=5/quarter@2"},
		"a=5/week":        {algorithm.Weekly("a", 5, time.Monday), "a=5/week"},
		"a=5/week@sunday": {algorithm.Weekly("a", 5, time.Sunday), "a=5/week@sunday"},
	} {
		var f LimitFlag
		if err := f.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		set, err := (&Flags{Limit: []LimitFlag{f}}).Compile()
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := set.Variants()[0].Algorithm
		if budget := algorithm.Budget(want.algorithm); got != budget || f.String() != want.text {
			t.Errorf("%s is %v and %q, want %v and %q", text, got, f, budget, want.text)
		}
	}
	for _, text := range []string{"", "5", "5/month@32", "5/month@", "5/week@7", "5/1m@3",
		"=5/month", "0/month", "x/quarter", "5/quarter@sunday", "month"} {
		if err := new(LimitFlag).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is a limit", text)
		}
	}
}
