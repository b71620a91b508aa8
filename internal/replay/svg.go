package replay

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Sizes of the picture, in pixels. Bands stand below each other and have coordinates of their own:
// the plot begins at (0, 0).
const (
	svgWidth     = 800
	svgLeft      = 72
	svgPlotWidth = 704
	svgPlot      = 96  // height of a plot
	svgBand      = 156 // from one plot to the next
	svgFirst     = 100 // the first plot
	svgIntervals = svgPlotWidth / 2
)

const svgStyle = `
    text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
    .card { fill: #ffffff; stroke: #d1d9e0 }
    .title { font-size: 18px; font-weight: 600 }
    .name { font-size: 15px; font-weight: 600 }
    .small { font-size: 12px; fill: #59636e }
    .axis { stroke: #818b98; fill: none }
    .requests { fill: #218bff; fill-opacity: .55 }
    .refused { fill: #cf222e }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc }
      .card { fill: #0d1117; stroke: #3d444d }
      .small { fill: #9198a1 }
      .refused { fill: #ff5a52 }
    }
`

// WriteSVG draws the requests and the refusals over time, for light and dark backgrounds.
func (r *Report) WriteSVG(w io.Writer) error {
	var b bytes.Buffer
	height := svgFirst + svgBand*len(r.Proposals) - 24
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title desc">`+"\n",
		svgWidth, height, svgWidth, height)
	fmt.Fprintf(&b, "  <title id=\"title\">Recorded requests under proposed limits</title>\n  <desc id=\"desc\">%s of %s from %s to %s.",
		counted(r.Input.Requests, "request"), counted(int64(r.Input.Keys), "key"),
		r.Input.First.Format(time.RFC3339), r.Input.Last.Format(time.RFC3339))
	for _, o := range r.Proposals {
		fmt.Fprintf(&b, " %s.", escape(r.sentence(&o)))
	}
	fmt.Fprintf(&b, "</desc>\n  <style>%s  </style>\n", svgStyle)
	fmt.Fprintf(&b, `  <rect class="card" x=".5" y=".5" width="%d" height="%d" rx="8"/>`+"\n",
		svgWidth-1, height-1)
	fmt.Fprintf(&b, `  <text class="title" x="24" y="34">Recorded requests under proposed limits</text>`+"\n")
	fmt.Fprintf(&b, `  <text class="small" x="24" y="55">%s. In each %s: <tspan class="requests" style="fill-opacity:1">■</tspan> requests, of which <tspan class="refused">■</tspan> would be refused.</text>`+"\n",
		fmt.Sprintf("%s of %s", counted(r.Input.Requests, "request"),
			counted(int64(r.Input.Keys), "key")), short(r.OverTime.Interval))
	for i := range r.Proposals {
		fmt.Fprintf(&b, `  <g transform="translate(%d %d)">`+"\n", svgLeft, svgFirst+i*svgBand)
		r.band(&b, i)
		fmt.Fprintf(&b, "  </g>\n")
	}
	fmt.Fprintf(&b, "</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

// sentence says what a proposal would have done.
func (r *Report) sentence(o *Outcome) string {
	return fmt.Sprintf("%s, %s: %s of %s refused (%s), of %s", limitText(o.Limit), o.Algorithm,
		grouped(o.Refused), counted(r.Input.Requests, "request"),
		percent(o.Refused, r.Input.Requests), counted(int64(o.KeysRefused), "key"))
}

// band draws a proposal.
func (r *Report) band(b *bytes.Buffer, i int) {
	fmt.Fprintf(b, `    <text class="name" x="-48" y="-14">%s</text>`+"\n",
		escape(r.sentence(&r.Proposals[i])))
	requests, refused := r.OverTime.Requests, r.OverTime.Refused[i]
	if len(requests) > 0 {
		most := slices.Max(requests)
		fmt.Fprintf(b, `    <path class="requests" d="%s"/>`+"\n", area(requests, most))
		fmt.Fprintf(b, `    <path class="refused" d="%s"/>`+"\n", area(refused, most))
		fmt.Fprintf(b, `    <text class="small" x="-8" y="8" text-anchor="end">%s</text>`+"\n",
			grouped(most))
		r.times(b)
	}
	fmt.Fprintf(b, `    <text class="small" x="-8" y="%d" text-anchor="end">0</text>`+"\n",
		svgPlot+4)
	fmt.Fprintf(b, `    <path class="axis" d="M0 0V%dH%d"/>`+"\n", svgPlot, svgPlotWidth)
}

// times writes the times of the beginning, the middle and the end.
func (r *Report) times(b *bytes.Buffer) {
	span := r.OverTime.Interval * time.Duration(len(r.OverTime.Requests))
	for i, anchor := range []string{"start", "middle", "end"} {
		at := r.OverTime.From.Add(span / 2 * time.Duration(i))
		fmt.Fprintf(b, `    <text class="small" x="%d" y="%d" text-anchor="%s">%s</text>`+"\n",
			svgPlotWidth/2*i, svgPlot+18, anchor, at.Format(textTime))
	}
}

// area returns the outline of bars. One that is not empty has a height of a pixel at least.
func area(counts []int64, most int64) string {
	var d strings.Builder
	fmt.Fprintf(&d, "M0 %d", svgPlot)
	last := int64(0)
	for i, n := range counts {
		if n == last {
			continue
		}
		y := float64(svgPlot)
		if n > 0 {
			y -= max(1, svgPlot*float64(n)/float64(most))
		}
		fmt.Fprintf(&d, "H%.1fV%.1f", float64(i)*svgPlotWidth/float64(len(counts)), y)
		last = n
	}
	if last > 0 {
		fmt.Fprintf(&d, "H%dV%d", svgPlotWidth, svgPlot)
	}
	d.WriteString("Z")
	return d.String()
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}
