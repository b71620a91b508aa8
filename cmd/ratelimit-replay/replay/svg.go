package replay

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit-replay/internal/svg"
)

// Sizes of the picture, in pixels. Bands are drawn one below the other. Each has coordinates of its
// own, in which its plot begins at (0, 0).
const (
	svgLeft      = 72
	svgPlotWidth = 704
	svgPlot      = 96  // height of a plot
	svgBand      = 156 // from one plot to the next
	svgFirst     = 100 // the first plot
	svgIntervals = svgPlotWidth / 2
)

// WriteSVG draws the requests and the refusals over time, for light and dark backgrounds.
func (r *Report) WriteSVG(w io.Writer) error {
	input := fmt.Sprintf("%s of %s",
		counted(r.Input.Requests, "request"), counted(int64(r.Input.Keys), "key"))
	description := fmt.Sprintf("%s from %s to %s.",
		input, r.Input.First.Format(time.RFC3339), r.Input.Last.Format(time.RFC3339))
	for i := range r.Proposals {
		description += " " + r.sentence(&r.Proposals[i]) + "."
	}
	p := svg.New(svgFirst+svgBand*len(r.Proposals)-24,
		"Recorded requests under proposed limits", description)
	p.Printf(`<text class="small" x="24" y="55">%s. In each %s: `+
		`<tspan class="area">■</tspan> requests, `+
		`of which <tspan class="alert">■</tspan> would be refused.</text>`,
		input, short(r.OverTime.Interval))
	for i := range r.Proposals {
		p.Printf(`<g transform="translate(%d %d)">`, svgLeft, svgFirst+i*svgBand)
		r.band(p, i)
		p.Printf("</g>")
	}
	_, err := p.WriteTo(w)
	return err
}

// sentence returns a sentence about what a proposal would have done.
func (r *Report) sentence(o *Outcome) string {
	return fmt.Sprintf("%s, %s: %s of %s refused (%s), of %s", limitText(o.Limit), o.Algorithm,
		grouped(o.Refused), counted(r.Input.Requests, "request"),
		percent(o.Refused, r.Input.Requests), counted(int64(o.KeysRefused), "key"))
}

// band draws a proposal.
func (r *Report) band(p *svg.Picture, i int) {
	p.Text("name", -48, -14, "start", r.sentence(&r.Proposals[i]))
	requests, refused := r.OverTime.Requests, r.OverTime.Refused[i]
	if len(requests) > 0 {
		most := slices.Max(requests)
		p.Printf(`<path class="area" d="%s"/>`, area(requests, most))
		p.Printf(`<path class="alert" d="%s"/>`, area(refused, most))
		p.Text("small", -8, 8, "end", grouped(most))
		r.times(p)
	}
	p.Text("small", -8, svgPlot+4, "end", "0")
	p.Printf(`<path class="axis" d="M0 0V%dH%d"/>`, svgPlot, svgPlotWidth)
}

// times writes the time at the beginning, in the middle and at the end.
func (r *Report) times(p *svg.Picture) {
	span := r.OverTime.Interval * time.Duration(len(r.OverTime.Requests))
	for i, anchor := range []string{"start", "middle", "end"} {
		at := r.OverTime.From.Add(span / 2 * time.Duration(i))
		p.Text("small", float64(svgPlotWidth/2*i), svgPlot+18, anchor, at.Format(textTime))
	}
}

// area returns the outline of bars. A bar that is not empty is at least a pixel high.
func area(counts []int64, most int64) string {
	steps := svg.NewSteps(svgPlot)
	for i, n := range counts {
		y := float64(svgPlot)
		if n > 0 {
			y -= max(1, svgPlot*float64(n)/float64(most))
		}
		steps.To(float64(i)*svgPlotWidth/float64(len(counts)), y)
	}
	return steps.End(svgPlotWidth)
}
