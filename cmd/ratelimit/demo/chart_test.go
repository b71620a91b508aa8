package demo

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/truewindow/ratelimit"
)

func chart(r *recording, s *series) []string {
	var b bytes.Buffer
	writeChart(&b, r, s)
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// TestChart compares the charts of a run with ones that were checked by hand. There are 13 columns
// in a window, so a burst stays in the trailing window for 13 or 14.
func TestChart(t *testing.T) {
	const axis = "    0 └──────┴────────────┴────────────┴────────────┴────────────┴──────"
	want := [4][]string{{
		"   40 ┤       ███████████",
		"      ┤       ███████████",
		"   20 ┤▔▔▔▔█████████████████▔▔▔▔▔▔▔▔▔▔▔▔████████████████████████████▔▔▔▔",
		"      ┤    █████████████████            ████████████████████████████",
		axis,
		"admits    20  20       0                20            20",
	}, {
		"   35 ┤                ▄▄",
		"      ┤       ▁▁▁▁▁▁▁▁▁██",
		"   20 ┤▔▔▔▔██████████████▄▄▄▄▄▄▄▄▄▄▄▄▔▔▔██████████████▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔",
		"      ┤    ██████████████████████████   ██████████████▃▃▃▃▃▃▃▃▃▃▃▃▃▃",
		axis,
		"admits    20  1        14               20            3",
	}, {
		"   38 ┤                ▇▇",
		"      ┤       ▄▄▄▄▄▄▄▄▄██",
		"   20 ┤▔▔▔▔██████████████▇▇▇▄▄▄▄▄▄▄▄▄▔▔▔████████████████████████████▔▔▔▔",
		"      ┤    ██████████████████████████   ████████████████████████████",
		axis,
		"admits    20  4        14               20            20",
	}, {
		"   20 ┤▔▔▔▔██████████████▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔████████████████████████████▔▔▔▔",
		"      ┤    ██████████████               ████████████████████████████",
		axis,
		"admits    20  0        0                20            20",
	}}
	synctest.Test(t, func(t *testing.T) {
		r := record(t, ratelimit.Limit{Max: 20, Window: 2 * time.Second}, 0)
		for i := range r.series {
			lines := chart(r, &r.series[i])
			if len(lines) != len(want[i]) {
				t.Errorf("%d lines, want %d", len(lines), len(want[i]))
				continue
			}
			for j, line := range lines {
				if got := strings.TrimRight(line, " "); got != want[i][j] {
					t.Errorf("%s: got\n%s, want\n%s", r.series[i].name, got, want[i][j])
				}
				if n := utf8.RuneCountInString(line); n != chartWidth {
					t.Errorf("%d columns: %s", n, line)
				}
			}
		}
		var times bytes.Buffer
		writeTimes(&times, r)
		if got := strings.TrimRight(times.String(), " \n"); got !=
			"            1s           3s           5s           7s           9s" {
			t.Errorf("the times are %q", got)
		}
	})
}

// TestChartOfPart checks that nothing is drawn that has not happened yet, and that a small count is
// still visible.
func TestChartOfPart(t *testing.T) {
	// a column is a second
	r := newRecording(ratelimit.Limit{Max: 1000, Window: 13 * time.Second})
	r.until = 10_500_000
	r.series[0].add(attempt{at: 3_000_000, admitted: true})
	lines := chart(&r, &r.series[0])
	want := strings.Repeat(" ", 3) + strings.Repeat("▁", 8) + strings.Repeat(" ", plotWidth-11)
	if got := string([]rune(lines[limitRows-1])[labelWidth+1:]); got != want {
		t.Errorf("%q", got)
	}
	empty := chart(&r, &r.series[3])
	if got := strings.Trim(strings.Join(empty[:limitRows], ""), " ┤▔10"); got != "" {
		t.Errorf("without an admission: %q", got)
	}
	if got := strings.TrimRight(empty[len(empty)-1], " "); got != "admits" {
		t.Errorf("without a burst: %q", got)
	}
}
