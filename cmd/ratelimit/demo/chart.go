package demo

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
	// one column is the axis; with 13 columns for each window, bursts on both sides of an edge are
	// not in its column
	plotWidth = chartWidth - labelWidth - 1
	limitRows = 2 // rows from zero to the limit
)

// eighths has the blocks that fill a cell from below, by the number of eighths.
var eighths = [...]rune{' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'}

// writeChart draws the units in the trailing window over time, with the limit as a line, and below
// it the admissions of each burst, in lines of chartWidth columns. A column shows the largest count
// of its time.
func writeChart(w io.Writer, r *recording, s *series) {
	limit := int(r.limit.Max)
	trailing := columns(r, s)
	top := slices.Max(trailing)
	rows := max(limitRows, (top*limitRows+limit-1)/limit)
	for row := rows; row > 0; row-- {
		label, empty := "", ' '
		switch row {
		case limitRows:
			label, empty = fmt.Sprint(limit, " "), '▔'
		case rows:
			label = fmt.Sprint(top, " ")
		}
		cells := make([]rune, plotWidth)
		for i := range cells {
			if cells[i] = cell(trailing[i], limit, row); cells[i] == ' ' {
				cells[i] = empty
			}
		}
		writeRow(w, label, '┤', cells)
	}
	axis := []rune(strings.Repeat("─", plotWidth))
	for _, edge := range r.edges() {
		axis[column(r, edge)] = '┴'
	}
	writeRow(w, "0 ", '└', axis)
	writeRow(w, "admits", ' ', admissions(r, s))
}

// columns returns, for each column of the plot, the most units in the trailing window.
func columns(r *recording, s *series) []int {
	trailing := make([]int, plotWidth)
	span := r.duration().Microseconds()
	for i := range trailing {
		from, to := r.start+span*int64(i)/plotWidth, r.start+span*int64(i+1)/plotWidth
		if from <= r.until {
			trailing[i] = s.mostIn(from, to, r.limit.Window)
		}
	}
	return trailing
}

// column returns the column of an instant.
func column(r *recording, instant int64) int {
	return int((instant - r.start) * plotWidth / r.duration().Microseconds())
}

// cell returns the block of a bar of n units in a row; the lowest row is 1. A bar that is not empty
// shows at least one eighth.
func cell(n, limit, row int) rune {
	filled := (n*limitRows*8+limit-1)/limit - (row-1)*8
	return eighths[min(max(filled, 0), 8)]
}

// admissions returns a row with the number of units admitted of each burst, at its column.
func admissions(r *recording, s *series) []rune {
	cells := []rune(strings.Repeat(" ", plotWidth))
	for i := range bursts {
		offered, admitted := s.ofBurst(i)
		if offered == 0 {
			continue
		}
		number, at := []rune(fmt.Sprint(admitted)), column(r, r.burstAt(i))
		if crowded(i) {
			at -= len(number) - 1
		}
		copy(cells[max(0, at):], number)
	}
	return cells
}

// writeTimes writes the time of each edge.
func writeTimes(w io.Writer, r *recording) {
	cells := []rune(strings.Repeat(" ", plotWidth))
	for _, edge := range r.edges() {
		label := []rune((time.Duration(edge-r.start) * time.Microsecond).String())
		copy(cells[max(0, column(r, edge)-len(label)/2):], label)
	}
	writeRow(w, "", ' ', cells)
}

func writeRow(w io.Writer, label string, axis rune, cells []rune) {
	fmt.Fprintf(w, "%*s%c%s\n", labelWidth, label, axis, string(cells))
}
