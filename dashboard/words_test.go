package dashboard

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// TestWords: numbers, durations and limits are as people say them.
func TestWords(t *testing.T) {
	ago := time.Now().UTC().Add(-13 * time.Hour) // perhaps yesterday
	log := algorithm.SlidingLog(ratelimit.PerMinute("a", 1_000_000))
	for got, want := range map[string]string{
		number(0): "0", number(999): "999", number(1000): "1,000", number(1256222): "1,256,222",
		number(-1000): "-1,000",

		perSecond(0, 60): "0/s", perSecond(1, 1000): "<0.01/s", perSecond(1, 10): "0.1/s",
		perSecond(25, 100): "0.25/s", perSecond(31, 10): "3.1/s", perSecond(74_400, 60): "1,240/s",

		compact(800): "800", compact(1200): "1,200", compact(15_000): "15k",
		compact(1e6): "1M", compact(1 << 40): "1.1T",

		percent(0, 0): "0 %", percent(1, 10_000): "<0.1 %", percent(31, 1000): "3.1 %",
		percent(3, 100): "3 %", percent(49, 100): "49 %", percent(9999, 10_000): ">99 %",
		percent(7, 7): "100 %", percent(496, 1000): "50 %", percent(995, 10_000): "10 %",

		length(0): "0 s", length(150 * time.Millisecond): "0.2 s", length(16 * time.Second): "16 s",
		length(59*time.Second + 1): "1 min", length(125 * time.Minute): "2 h 5 min",
		length(time.Hour - 1): "1 h", length(90 * time.Second): "1 min 30 s",
		length(7*time.Hour + 59*time.Minute + time.Second): "8 h",
		length(49 * time.Hour):                             "2 d 1 h",

		Words(log):                                             "1,000,000 a minute",
		Words(algorithm.Budget(log)):                           "1,000,000 a minute",
		Words(algorithm.InFlight("a", 5)):                      "5 at once",
		Words(algorithm.Monthly("a", 1000)):                    "1,000 a month",
		Words(algorithm.Quarterly("a", 7).WithDay(2)):          "7 a quarter from day 2",
		Words(algorithm.Blocking("a", 24*time.Hour)):           "blocks a key for at most 1 d",
		Words(algorithm.TokenBucket("a", 10, 100)):             "100 in 10 s",
		Words(algorithm.FixedWindow(ratelimit.PerDay("a", 5))): "5 a day",

		trend(104, 100): "+4 %", trend(1, 0): "", trend(100.5, 100): "steady",
		points(5, 3.1): "+1.9 points", points(3, 3.01): "steady",

		string(clock(ago, true)): `<time datetime="` + ago.Format(time.RFC3339) + `">` +
			ago.Format("2006-01-02 15:04:05 UTC") + "</time>",

		notes(&counts{undecided: 1, cached: 2, local: 3, open: 4, here: 5, stricter: 6, looser: 7,
			warned: 8}, 9): "1 undecided, 2 refused from memory, 3 decided locally, " +
			"4 admitted by the policy, 5 from units taken ahead, 8 with a warning, " +
			"would refuse 6 that the live limits admit, " +
			"would admit 7 that the live limits refuse, 9 open holds",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	tops := map[float64]float64{0: 1, 1: 1, 1.1: 1.2, 1139: 1200, 850: 1000, 0.3: 0.3}
	for v, want := range tops {
		if got := niceTop(v); got < want*0.999 || got > want*1.001 {
			t.Errorf("the axis of %v ends at %v, want %v", v, got, want)
		}
	}
}
