package daemon

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

const (
	chartWidth = 72
	labelWidth = 6
	// one column is the axis; 13 for each window keep both sides of an edge apart from it
	plotWidth = chartWidth - labelWidth - 1
	limitRows = 4 // rows from zero to the limit
)

// eighths are the blocks that fill a cell from below by so many eighths.
var eighths = [...]rune{' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'}

// writeChart draws the units in the trailing window over time, with the limit as a line, and below
// it the admissions, in lines of chartWidth columns. A column shows the most of its time.
func writeChart(w io.Writer, r *recording, s *series) {
	limit := int(r.limit.Max)
	trailing, admitted := columns(r, s)
	top := slices.Max(trailing)
	rows := max(limitRows, (top*limitRows+limit-1)/limit)
	for row := rows; row > 0; row-- {
		if row == limitRows {
			writeRow(w, fmt.Sprint(limit, " "), '┼', func(i int) rune {
				if trailing[i] > limit {
					return '█'
				}
				return '╌'
			})
		}
		label := ""
		if row == rows && row > limitRows {
			label = fmt.Sprint(top, " ")
		}
		writeRow(w, label, '┤', func(i int) rune { return cell(trailing[i], limit, row) })
	}
	labels := writeAxis(w, r)
	writeRow(w, "", ' ', func(i int) rune { return labels[i] })
	writeRow(w, "admits", ' ', func(i int) rune { return cell(admitted[i]*limitRows, limit, 1) })
}

// columns returns, for each column of the plot, the most units in the trailing window and the units
// admitted.
func columns(r *recording, s *series) (trailing, admitted []int) {
	trailing, admitted = make([]int, plotWidth), make([]int, plotWidth)
	span := r.duration().Microseconds()
	for i := range plotWidth {
		from, to := r.start+span*int64(i)/plotWidth, r.start+span*int64(i+1)/plotWidth
		if from <= r.until {
			trailing[i] = s.mostIn(from, to, r.limit.Window)
			admitted[i] = s.trailing(to-1, time.Duration(to-from)*time.Microsecond)
		}
	}
	return trailing, admitted
}

// cell returns what a bar of n units shows in a row, of which the lowest is 1. A bar that is not
// empty shows.
func cell(n, limit, row int) rune {
	filled := (n*limitRows*8+limit-1)/limit - (row-1)*8
	return eighths[min(max(filled, 0), 8)]
}

func writeRow(w io.Writer, label string, axis rune, plot func(column int) rune) {
	cells := make([]rune, plotWidth)
	for i := range cells {
		cells[i] = plot(i)
	}
	fmt.Fprintf(w, "%*s%c%s\n", labelWidth, label, axis, string(cells))
}

// writeAxis draws the axis with a mark for each edge of the fixed window, and returns the labels of
// the edges.
func writeAxis(w io.Writer, r *recording) []rune {
	axis, labels := []rune(strings.Repeat("─", plotWidth)), []rune(strings.Repeat(" ", plotWidth))
	for _, edge := range r.edges() {
		i := int((edge - r.start) * plotWidth / r.duration().Microseconds())
		axis[i] = '┴'
		label := []rune((time.Duration(edge-r.start) * time.Microsecond).String())
		copy(labels[max(0, i-len(label)/2):], label)
	}
	writeRow(w, "0 ", '└', func(i int) rune { return axis[i] })
	return labels
}
