package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	chartColumns = 64
	chartRows    = 4
	chartLabel   = 10
)

// eighths has the blocks that fill a cell from below, by the number of eighths.
var eighths = [...]rune{' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'}

// writeArrivals draws the requests over time.
func (r *Report) writeArrivals(b *strings.Builder) {
	c := r.timeline.atMost(chartColumns)
	arrivals := c.series[0]
	most := slices.Max(arrivals)
	fmt.Fprintf(b, "\nRequests in each %s\n\n", c.interval())
	for row := chartRows; row > 0; row-- {
		label := ""
		if row == chartRows {
			label = grouped(most)
		}
		fmt.Fprintf(b, "%*s ┤%s\n", chartLabel, label,
			strings.TrimRight(bars(arrivals, most, row, chartRows), " "))
	}
	width := columnWidth(arrivals) * len(arrivals)
	fmt.Fprintf(b, "%*s └%s\n", chartLabel, "0", strings.Repeat("─", width))
	first, last := instant(c.from).Format(textTime), instant(c.end).Format(textTime)
	space := max(2, width-len(first)-len(last))
	fmt.Fprintf(b, "%*s  %s%*s%s\n", chartLabel, "", first, space, "", last)
}

// writeRefusals draws the refusals of a proposal over the same time.
func (r *Report) writeRefusals(b *strings.Builder, proposal int) {
	c := r.timeline.atMost(chartColumns)
	refused := c.series[1+proposal]
	most := slices.Max(refused)
	fmt.Fprintf(b, "\n%*s │%s│ at most %s in %s\n", chartLabel, "refusals",
		bars(refused, most, 1, 1), grouped(most), c.interval())
}

func (l *timeline) interval() string {
	return short(time.Duration(widths[l.width]) * time.Microsecond)
}

// columnWidth returns the number of columns of an interval.
func columnWidth(counts []int64) int { return max(1, chartColumns/len(counts)) }

// bars returns the blocks of bars in a row; the lowest row is 1. A bar that is not empty shows at
// least one eighth.
func bars(counts []int64, most int64, row, rows int) string {
	var b strings.Builder
	width := columnWidth(counts)
	for _, n := range counts {
		filled := int64(0)
		if most > 0 {
			filled = (n*int64(rows)*8+most-1)/most - int64(row-1)*8
		}
		for range width {
			b.WriteRune(eighths[min(max(filled, 0), 8)])
		}
	}
	return b.String()
}
