// Package svg writes charts as SVG, in one style for light and dark backgrounds.
//
// The classes of elements are "title", "name" and "small" for text, "axis" for lines, "area", and
// "alert" for the part of an area that matters.
package svg

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// width is that of a picture in pixels.
const width = 800

const style = `
    text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
    text { fill: #1f2328 }
    .card { fill: #ffffff; stroke: #d1d9e0 }
    .title { font-size: 18px; font-weight: 600 }
    .name { font-size: 15px; font-weight: 600 }
    .small { font-size: 12px; font-weight: 400; fill: #59636e }
    .axis { stroke: #818b98; fill: none }
    .area { fill: #218bff; fill-opacity: .7 }
    .alert { fill: #cf222e }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc }
      .card { fill: #0d1117; stroke: #3d444d }
      .small { fill: #9198a1 }
      .alert { fill: #ff5a52 }
    }
`

// Picture is a picture that is being drawn. Create one with [New].
type Picture struct{ b bytes.Buffer }

// New returns a picture with a height in pixels, a title, and a description for screen readers.
func New(height int, title, description string) *Picture {
	p := new(Picture)
	p.Printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" `+
		`role="img" aria-labelledby="title desc">`, width, height, width, height)
	p.Printf(`<title id="title">%s</title>`, escape(title))
	p.Printf(`<desc id="desc">%s</desc>`, escape(description))
	p.Printf("<style>%s</style>", style)
	p.Printf(`<rect class="card" x=".5" y=".5" width="%d" height="%d" rx="8"/>`, width-1, height-1)
	p.Text("title", 24, 34, "start", title)
	return p
}

// Printf adds a line of SVG. It escapes nothing.
func (p *Picture) Printf(format string, args ...any) {
	fmt.Fprintf(&p.b, format+"\n", args...)
}

// Text adds text. anchor says which part of it is at x: "start", "middle" or "end". y is its base
// line.
func (p *Picture) Text(class string, x, y float64, anchor, text string) {
	p.Printf(`<text class="%s" x="%s" y="%s" text-anchor="%s">%s</text>`,
		class, number(x), number(y), anchor, escape(text))
}

// WriteTo ends the picture and writes it.
func (p *Picture) WriteTo(w io.Writer) (int64, error) {
	p.Printf("</svg>")
	return p.b.WriteTo(w)
}

// escape returns text for use in an element or an attribute.
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text))
	return b.String()
}

// Steps is the outline of the area between a base line and a line that goes up and down in steps.
type Steps struct {
	path    strings.Builder
	base, y float64
}

// NewSteps returns an outline that begins at x = 0 on the base line y = base.
func NewSteps(base float64) *Steps {
	s := &Steps{base: base, y: base}
	s.path.WriteString("M0 " + number(base))
	return s
}

// To moves the line to y at x, which is not smaller than in the call before.
func (s *Steps) To(x, y float64) {
	if y != s.y {
		s.path.WriteString("H" + number(x) + "V" + number(y))
		s.y = y
	}
}

// End ends the area at x and returns it as the attribute d of a path.
func (s *Steps) End(x float64) string {
	s.To(x, s.base)
	return s.path.String() + "Z"
}

// number returns x rounded to tenths of a pixel.
func number(x float64) string {
	return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
}
