package demo

import (
	"fmt"
	"io"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit-replay/svg"
)

// Sizes of the picture, in pixels. Panels are drawn one below the other. Each has coordinates of
// its own, in which its plot begins at (0, 0).
const (
	svgHeight    = 662
	svgLeft      = 64
	svgPlotWidth = 704
	svgPlot      = 72  // height of the plot
	svgPanel     = 142 // from one plot to the next
	svgFirst     = 116 // the first plot
	svgBurst     = 16  // height of the bar of a burst
	svgLine      = 14  // from one small line of text to the next
)

// writeSVG draws the report of writeReport, for light and dark backgrounds.
func writeSVG(w io.Writer, r *recording, store string) error {
	window, top := r.limit.Window, r.limit.Max
	description := fmt.Sprintf("Units admitted in the trailing %v over the %v of one run.",
		window, r.duration())
	for i := range r.series {
		s := &r.series[i]
		most := s.most(window)
		top = max(top, int64(most))
		description += fmt.Sprintf(" %s: at most %d units in any window, %s times the limit; %s.",
			s.name, most, r.quotient(most), figures(r, s))
	}
	p := svg.New(svgHeight, fmt.Sprintf("At most %d units in any %v?", r.limit.Max, window),
		description)
	p.Text("small", svgLeft+svgPlotWidth, 34, "end", "on "+store)
	p.Text("small", 24, 55, "start", fmt.Sprintf("Units admitted in the trailing %v and, "+
		"under the axis, of each burst of %d. All algorithms got the same bursts.",
		window, r.burst))
	p.Text("small", 24, 72, "start", "Dotted: edges of windows. Refused wrongly: "+
		"an exact log with the same admissions would have admitted it.")
	scale := svgPlot / float64(top)
	p.Printf(`<clipPath id="over"><rect width="%d" height="%.1f"/></clipPath>`,
		svgPlotWidth, svgPlot-scale*float64(r.limit.Max))
	for i := range r.series {
		p.Printf(`<g transform="translate(%d %d)">`, svgLeft, svgFirst+i*svgPanel)
		drawPanel(p, r, &r.series[i], scale)
		if i == len(r.series)-1 {
			drawTimes(p, r)
		}
		p.Printf("</g>")
	}
	_, err := p.WriteTo(w)
	return err
}

// figures returns the numbers of units that were offered, admitted and wrongly refused, as text.
func figures(r *recording, s *series) string {
	return fmt.Sprintf("%d of %d admitted, %d refused wrongly",
		len(s.admitted), len(s.attempts), s.wrong(r.limit))
}

// plotX returns where an instant is in a plot.
func plotX(r *recording, instant int64) float64 {
	return float64(instant-r.start) * svgPlotWidth / float64(r.duration().Microseconds())
}

func drawPanel(p *svg.Picture, r *recording, s *series, scale float64) {
	most := s.most(r.limit.Window)
	p.Text("name", -40, -svgLine, "start",
		fmt.Sprintf("%s: %s × the limit", s.name, r.quotient(most)))
	p.Text("small", svgPlotWidth, -svgLine, "end", figures(r, s))
	for _, edge := range r.edges() {
		p.Printf(`<path class="edge" d="M%.1f 0V%d"/>`, plotX(r, edge), svgPlot)
	}
	d := area(r, s, scale)
	p.Printf(`<path class="area" d="%s"/>`, d)
	limit := svgPlot - scale*float64(r.limit.Max)
	if int64(most) > r.limit.Max {
		p.Printf(`<path class="alert" clip-path="url(#over)" d="%s"/>`, d)
		if y := svgPlot - scale*float64(most); limit-y >= svgLine {
			p.Text("small", -8, y+4, "end", fmt.Sprint(most))
		}
	}
	p.Printf(`<path class="limit" d="M0 %.1fH%d"/>`, limit, svgPlotWidth)
	p.Text("small", -8, limit+4, "end", fmt.Sprint(r.limit.Max))
	p.Text("small", svgPlotWidth, limit-5, "end", "limit")
	p.Text("small", -8, svgPlot+4, "end", "0")
	p.Printf(`<path class="axis" d="M0 0V%dH%d"/>`, svgPlot, svgPlotWidth)
	for i := range bursts {
		drawBurst(p, r, s, i)
	}
}

// drawBurst draws how much of a burst was admitted.
func drawBurst(p *svg.Picture, r *recording, s *series, i int) {
	offered, admitted := s.ofBurst(i)
	if offered == 0 {
		return
	}
	const y, width = svgPlot + 4, 5
	x := plotX(r, r.burstAt(i))
	height := svgBurst * float64(admitted) / float64(r.burst)
	p.Printf(`<rect class="area" x="%.1f" y="%.1f" width="%d" height="%.1f"/>`,
		x-width/2., y+svgBurst-height, width, height)
	p.Printf(`<rect class="outline" x="%.1f" y="%d" width="%d" height="%d"/>`,
		x-width/2., y, width, svgBurst)
	anchor, dx := "start", 8.
	if crowded(i) {
		anchor, dx = "end", -8
	}
	p.Text("small", x+dx, y+svgBurst-3, anchor, fmt.Sprint(admitted))
}

// drawTimes writes the time of each edge.
func drawTimes(p *svg.Picture, r *recording) {
	for _, edge := range r.edges() {
		p.Text("small", plotX(r, edge), svgPlot+svgBurst+18, "middle",
			(time.Duration(edge-r.start) * time.Microsecond).String())
	}
}

// area returns the outline of the trailing count. Each half pixel shows the largest count of its
// time.
func area(r *recording, s *series, scale float64) string {
	const samples = 2 * svgPlotWidth
	steps, span := svg.NewSteps(svgPlot), r.duration().Microseconds()
	for i := range int64(samples) {
		from, to := r.start+span*i/samples, r.start+span*(i+1)/samples
		if from > r.until {
			break
		}
		steps.To(float64(i)/2, svgPlot-scale*float64(s.mostIn(from, to, r.limit.Window)))
	}
	return steps.End(min(svgPlotWidth, plotX(r, r.until)))
}
