package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/truewindow/ratelimit/internal/svg"
)

// Sizes of a panel of lines, in pixels.
const (
	panelWidth  = 500
	panelHeight = 220
	panelLeft   = 96
	labelStep   = 14
	leader      = 22 // from the end of a line to its label
)

// A panel has a line for each entry over the cases of a metric, both axes logarithmic.
type panel struct {
	title           string
	subject, metric string
	prefix          string   // part of the names of cases before a number
	entries         []string // nil means all
}

type line struct {
	entry  string
	points [][2]float64 // x and y
}

// lines returns the lines of a panel.
func (r *report) lines(c panel) []line {
	var lines []line
	for _, t := range r.Tables {
		if t.Subject != c.subject || t.Metric.Name != c.metric {
			continue
		}
		for _, row := range t.Rows {
			if c.entries != nil && !slices.Contains(c.entries, row.Entry) {
				continue
			}
			l := line{entry: row.Entry}
			for i, name := range t.Columns {
				number, ok := strings.CutPrefix(name, c.prefix)
				x, err := strconv.ParseFloat(strings.ReplaceAll(number, ",", ""), 64)
				if v := row.Cells[i]; ok && err == nil && v != nil && v.Median > 0 {
					l.points = append(l.points, [2]float64{x, float64(v.Median)})
				}
			}
			if len(l.points) > 0 {
				lines = append(lines, l)
			}
		}
	}
	return lines
}

// describe returns the figures of a panel as text.
func describe(c panel, lines []line) string {
	var b strings.Builder
	b.WriteString(c.title + ".")
	for _, l := range lines {
		b.WriteString(" " + chartName(l.entry) + ":")
		for i, at := range l.points {
			if i > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, " %v at %v", number(at[1]), number(at[0]))
		}
		b.WriteString(".")
	}
	return b.String()
}

// drawPanel draws lines in a plot whose top is at top.
func drawPanel(p *svg.Picture, title string, top float64, lines []line) {
	var xs, ys []float64
	for _, l := range lines {
		for _, at := range l.points {
			xs, ys = append(xs, at[0]), append(ys, at[1])
		}
	}
	slices.Sort(xs)
	xs = slices.Compact(xs)
	low := math.Floor(math.Log10(slices.Min(ys)))
	high := max(low+1, math.Ceil(math.Log10(slices.Max(ys))))
	first, last := math.Log10(xs[0]), math.Log10(xs[len(xs)-1])
	x := func(v float64) float64 {
		return panelLeft + panelWidth*(math.Log10(v)-first)/(last-first)
	}
	y := func(v float64) float64 {
		return top + panelHeight*(high-math.Log10(v))/(high-low)
	}
	p.Text("name", 24, top-14, "start", title)
	for e := low; e <= high; e++ {
		v := math.Pow(10, e)
		p.Printf(`<path class="edge" d="M%d %.1fH%d"/>`, panelLeft, y(v), panelLeft+panelWidth)
		p.Text("small", panelLeft-8, y(v)+4, "end", number(v).String())
	}
	p.Printf(`<path class="axis" d="M%d %.1fV%.1fH%d"/>`,
		panelLeft, top, top+panelHeight, panelLeft+panelWidth)
	for _, v := range xs {
		p.Text("small", x(v), top+panelHeight+18, "middle", number(v).String())
	}
	end := func(l line) (float64, float64) {
		last := l.points[len(l.points)-1]
		return x(last[0]), y(last[1])
	}
	slices.SortStableFunc(lines, func(a, b line) int {
		_, aY := end(a)
		_, bY := end(b)
		return cmp.Compare(aY, bY)
	})
	labels := make(map[float64]float64) // lowest label so far, by the x of the line's end
	for _, l := range lines {
		colour, width := colourOf(l.entry), 1.2
		if colour == ourColour {
			width = 2.5
		}
		var d strings.Builder
		for i, at := range l.points {
			command := "L"
			if i == 0 {
				command = "M"
			}
			fmt.Fprintf(&d, "%s%.1f %.1f", command, x(at[0]), y(at[1]))
		}
		p.Printf(`<path fill="none" stroke="%s" stroke-width="%.1f" d="%s"/>`,
			colour, width, d.String())
		for _, at := range l.points {
			p.Printf(`<circle fill="%s" cx="%.1f" cy="%.1f" r="3"/>`, colour, x(at[0]), y(at[1]))
		}
		endX, endY := end(l)
		labelY := endY
		if above, ok := labels[endX]; ok {
			labelY = max(labelY, above+labelStep)
		}
		labels[endX] = labelY
		p.Printf(`<path fill="none" stroke="%s" stroke-width=".7" d="M%.1f %.1fL%.1f %.1f"/>`,
			colour, endX+5, endY, endX+leader, labelY)
		p.Text("small", endX+leader+4, labelY+4, "start", chartName(l.entry))
	}
}

// linesChart draws panels, one below the other.
func (r *report) linesChart(title, subtitle string, panels ...panel) *svg.Picture {
	var texts []string
	for _, c := range panels {
		texts = append(texts, describe(c, r.lines(c)))
	}
	p := svg.New(70+300*len(panels), title, strings.Join(texts, " "))
	p.Text("small", 24, 55, "start", subtitle)
	for i, c := range panels {
		drawPanel(p, c.title, float64(106+300*i), r.lines(c))
	}
	return p
}
