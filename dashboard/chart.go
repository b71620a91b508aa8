package dashboard

import (
	"fmt"
	"strings"
)

// A chart draws the history of a limit as two areas: what was admitted, and above it what was
// refused or undecided.
type chart struct {
	Width, Height   int
	Admitted, Other string // paths of SVG
	Highest         int64  // decisions in one column
	Seconds         int    // of a column
}

const (
	columns       = 300
	columnSeconds = span / columns
	chartHeight   = 120
)

func (h *history) chart(s *series) chart {
	c := chart{Width: columns, Height: chartHeight, Seconds: columnSeconds}
	var admittedOf, allOf [columns]int64
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range columns { // from left to right, the oldest first
		sum := h.sum(s, (columns-1-i)*columnSeconds, columnSeconds)
		admittedOf[i] = sum[admitted]
		allOf[i] = sum[admitted] + sum[refused] + sum[undecided]
		c.Highest = max(c.Highest, allOf[i])
	}
	none := [columns]int64{}
	c.Admitted = area(&admittedOf, &none, c.Highest)
	c.Other = area(&allOf, &admittedOf, c.Highest)
	return c
}

// area returns the path of columns between two numbers each.
func area(tops, bottoms *[columns]int64, highest int64) string {
	var path strings.Builder
	for i, top := range tops {
		if top == bottoms[i] {
			continue
		}
		from, to := height(bottoms[i], highest), height(top, highest)
		fmt.Fprintf(&path, "M%d %.1fh1V%.1fh-1z", i, chartHeight-from, chartHeight-to)
	}
	return path.String()
}

func height(n, highest int64) float64 { return float64(n) / float64(highest) * chartHeight }
