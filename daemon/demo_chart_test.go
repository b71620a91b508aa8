package daemon

import (
	"bytes"
	"slices"
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

// row returns the plot of the line with a label.
func row(t *testing.T, lines []string, label string) []rune {
	t.Helper()
	for _, line := range lines {
		if cells := []rune(line); strings.TrimSpace(string(cells[:labelWidth])) == label {
			return cells[labelWidth+1:]
		}
	}
	t.Fatalf("no row %q:\n%s", label, strings.Join(lines, "\n"))
	return nil
}

func TestChart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, ratelimit.Limit{Max: 20, Window: 2 * time.Second}, 0)
		fixed, exact := chart(r, &r.fixed), chart(r, &r.exact)
		for _, line := range slices.Concat(fixed, exact) {
			if n := utf8.RuneCountInString(line); n != chartWidth {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		if got := len(fixed) - len(exact); got != limitRows {
			t.Errorf("the fixed window is %d rows higher", got)
		}
		peak, line := row(t, fixed, "40"), row(t, fixed, "20")
		for i := range plotWidth {
			above := peak[i] == '█'
			if !above && peak[i] != ' ' || above != (line[i] == '█') || !above && line[i] != '╌' {
				t.Errorf("column %d: %c in the top row and %c in that of the limit",
					i, peak[i], line[i])
			}
			// From the burst after an edge to the end of the window of the burst before it: 18
			// twentieths of 13 columns.
			if want := i >= 7 && i <= 18 || i >= 46 && i <= 57; above != want {
				t.Errorf("column %d: above the limit is %t", i, above)
			}
		}
		if got := string(row(t, exact, "20")); got != strings.Repeat("╌", plotWidth) {
			t.Errorf("the exact log crosses the limit: %s", got)
		}
		for _, lines := range [][]string{fixed, exact} {
			axis := row(t, lines, "0")
			for i := range axis {
				if (axis[i] == '┴') != (i%13 == 6) {
					t.Errorf("column %d of the axis: %c", i, axis[i])
				}
			}
		}
		for s, want := range map[*series][]int{&r.fixed: {5, 7, 22, 44, 46, 61},
			&r.exact: {5, 22, 44, 61}} {
			var got []int
			for i, c := range row(t, chart(r, s), "admits") {
				if c == '█' {
					got = append(got, i)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("the %s admits in columns %d, want %d", s.name, got, want)
			}
		}
	})
}

// TestChartOfPart checks that nothing is drawn that has not happened yet, and that little is not
// nothing.
func TestChartOfPart(t *testing.T) {
	// a column is a second
	r := &recording{limit: ratelimit.Limit{Max: 1000, Window: 13 * time.Second}, until: 10_500_000}
	r.fixed.add(attempt{at: 3_000_000, admitted: true})
	lines := chart(r, &r.fixed)
	want := strings.Repeat(" ", 3) + strings.Repeat("▁", 8) + strings.Repeat(" ", plotWidth-11)
	if got := string([]rune(lines[limitRows])[labelWidth+1:]); got != want {
		t.Errorf("%q", got)
	}
	for _, line := range chart(r, &r.exact)[1 : limitRows+1] {
		if got := string([]rune(line)[labelWidth+1:]); got != strings.Repeat(" ", plotWidth) {
			t.Errorf("without an admission: %q", got)
		}
	}
}
