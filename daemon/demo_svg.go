package daemon

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// Sizes of the picture, in pixels. Panels stand below each other and have coordinates of their own:
// the plot begins at (0, 0).
const (
	svgWidth     = 800
	svgHeight    = 494
	svgLeft      = 64
	svgPlotWidth = 704
	svgPlot      = 110 // height of the plot
	svgPanel     = 206 // from one plot to the next
	svgFirst     = 116 // the first plot
	svgBurst     = 16  // height of the bar of a burst
)

const svgStyle = `
    text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
    .card { fill: #ffffff; stroke: #d1d9e0 }
    .title { font-size: 18px; font-weight: 600 }
    .name { font-size: 15px; font-weight: 600 }
    .small { font-size: 12px; fill: #59636e }
    .axis { stroke: #818b98; fill: none }
    .edge { stroke: #818b98; stroke-dasharray: 1 4; stroke-linecap: round }
    .limit { stroke: #1f2328; stroke-dasharray: 6 4; fill: none }
    .units { fill: #218bff; fill-opacity: .75 }
    .over { fill: #cf222e }
    .offered { fill: none; stroke: #818b98 }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc }
      .card { fill: #0d1117; stroke: #3d444d }
      .small { fill: #9198a1 }
      .limit { stroke: #f0f6fc }
      .over { fill: #ff5a52 }
    }
`

// svgWriter remembers the first error.
type svgWriter struct {
	w   io.Writer
	err error
}

func (s *svgWriter) printf(format string, args ...any) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, format, args...)
	}
}

// writeSVG draws what writeReport tells, for light and dark backgrounds.
func writeSVG(w io.Writer, r *recording, store string) error {
	s := &svgWriter{w: w}
	window := r.limit.Window
	s.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title desc">`+"\n",
		svgWidth, svgHeight, svgWidth, svgHeight)
	s.printf("  <title id=\"title\">Bursts at the edges of a fixed window: %d units in %v</title>\n", r.limit.Max, window)
	s.printf("  <desc id=\"desc\">Units admitted in the trailing %v over the %v of one run.",
		window, r.duration())
	for _, series := range r.both() {
		most := series.most(window)
		s.printf(" %s: at most %d units in any window, %s times the limit; %d admitted of %d offered.",
			series.name, most, r.quotient(most), len(series.admitted), len(series.attempts))
	}
	s.printf("</desc>\n  <style>%s  </style>\n", svgStyle)
	s.printf(`  <rect class="card" x=".5" y=".5" width="%d" height="%d" rx="8"/>`+"\n",
		svgWidth-1, svgHeight-1)
	s.printf(`  <text class="title" x="24" y="34">At most %d units in any %v?</text>`+"\n",
		r.limit.Max, window)
	s.printf(`  <text class="small" x="24" y="55">Units admitted in the trailing %v, and under the axis those of each burst. The same bursts were offered to both.</text>`+"\n", window)

	top := r.limit.Max
	for _, series := range r.both() {
		top = max(top, int64(series.most(window)))
	}
	scale := svgPlot / float64(top)
	s.printf(`  <clipPath id="over"><rect width="%d" height="%.1f"/></clipPath>`+"\n",
		svgPlotWidth, svgPlot-scale*float64(r.limit.Max))
	notes := [...]string{"a counter that starts over at every edge (dotted)", "on " + store}
	for i, series := range r.both() {
		s.printf(`  <g transform="translate(%d %d)">`+"\n", svgLeft, svgFirst+i*svgPanel)
		s.panel(r, series, notes[i], scale)
		s.printf("  </g>\n")
	}
	s.printf("</svg>\n")
	return s.err
}

// panel draws one series.
func (s *svgWriter) panel(r *recording, series *series, note string, scale float64) {
	most := series.most(r.limit.Window)
	s.printf(`    <text class="name" x="-40" y="-18">%s: %d in %v, %s × the limit <tspan class="small" font-weight="400">— %s</tspan></text>`+"\n",
		series.name, most, r.limit.Window, r.quotient(most), escape(note))
	x := func(instant int64) float64 {
		return float64(instant-r.start) * svgPlotWidth / float64(r.duration().Microseconds())
	}
	for _, edge := range r.edges() {
		s.printf(`    <path class="edge" d="M%.1f 0V%d"/>`+"\n", x(edge), svgPlot)
		s.printf(`    <text class="small" x="%.1f" y="%d" text-anchor="middle">%v</text>`+"\n",
			x(edge), svgPlot+svgBurst+28, time.Duration(edge-r.start)*time.Microsecond)
	}
	d := area(r, series, scale)
	s.printf(`    <path class="units" d="%s"/>`+"\n", d)
	if int64(most) > r.limit.Max {
		s.printf(`    <path class="over" clip-path="url(#over)" d="%s"/>`+"\n", d)
		s.printf(`    <text class="small" x="-8" y="%.1f" text-anchor="end">%d</text>`+"\n",
			svgPlot-scale*float64(most)+4, most)
	}
	limit := svgPlot - scale*float64(r.limit.Max)
	s.printf(`    <path class="limit" d="M0 %.1fH%d"/>`+"\n", limit, svgPlotWidth)
	s.printf(`    <text class="small" x="-8" y="%.1f" text-anchor="end">%d</text>`+"\n",
		limit+4, r.limit.Max)
	s.printf(`    <text class="small" x="%d" y="%.1f" text-anchor="end">limit</text>`+"\n",
		svgPlotWidth, limit-5)
	s.printf(`    <text class="small" x="-8" y="%d" text-anchor="end">0</text>`+"\n", svgPlot+4)
	s.printf(`    <path class="axis" d="M0 0V%dH%d"/>`+"\n", svgPlot, svgPlotWidth)
	for i := range demoBursts {
		s.burst(r, series, i, x(r.burstAt(i)))
	}
}

// burst draws what a burst asked for, and how much of it was admitted.
func (s *svgWriter) burst(r *recording, series *series, i int, x float64) {
	offered, admitted := series.ofBurst(i)
	if offered == 0 {
		return
	}
	const y, width = svgPlot + 4, 5
	height := svgBurst * float64(admitted) / float64(r.burst)
	s.printf(`    <rect class="units" x="%.1f" y="%d" width="%d" height="%.1f"/>`+"\n",
		x-width/2., y, width, height)
	s.printf(`    <rect class="offered" x="%.1f" y="%d" width="%d" height="%d"/>`+"\n",
		x-width/2., y, width, svgBurst)
	anchor, dx := "start", 8.
	if demoBursts[i]%20 == 9 || i == len(demoBursts)-1 { // there is no room on the right
		anchor, dx = "end", -8
	}
	s.printf(`    <text class="small" x="%.1f" y="%d" text-anchor="%s">%d of %d</text>`+"\n",
		x+dx, y+svgBurst-3, anchor, admitted, offered)
}

// area returns the outline of the trailing count, each half pixel with the most of its time.
func area(r *recording, s *series, scale float64) string {
	const samples = 2 * svgPlotWidth
	var d strings.Builder
	fmt.Fprintf(&d, "M0 %d", svgPlot)
	span, last := r.duration().Microseconds(), 0
	for i := range int64(samples) {
		from, to := r.start+span*i/samples, r.start+span*(i+1)/samples
		if from > r.until {
			break
		}
		if n := s.mostIn(from, to, r.limit.Window); n != last {
			fmt.Fprintf(&d, "H%.1fV%.1f", float64(i)/2, svgPlot-scale*float64(n))
			last = n
		}
	}
	if last > 0 {
		end := min(float64(svgPlotWidth), float64(r.until-r.start)*svgPlotWidth/float64(span))
		fmt.Fprintf(&d, "H%.1fV%d", end, svgPlot)
	}
	d.WriteString("Z")
	return d.String()
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}
