package main

import (
	"fmt"
	"slices"
	"strings"
)

const style = `
    text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
    text { fill: #1f2328 }
    .card { fill: #ffffff; stroke: #d1d9e0 }
    .title { font-size: 19px; font-weight: 600 }
    .lane { fill: #818b98; fill-opacity: .08 }
    .head { font-size: 13px; font-weight: 600; fill: #59636e }
    .name { font-size: 14px; font-weight: 600 }
    .small { font-size: 11.5px; fill: #59636e }
    .box { fill: #ffffff; stroke: #afb8c1 }
    .user { fill: #ddf4ff; stroke: #54aeff }
    .arrow { fill: none; stroke: #818b98; stroke-width: 1.3; stroke-linecap: round }
    .tip { fill: #818b98 }
    .memory { fill: #0969da }
    .server { fill: #bc4c00 }
    .digit { font-size: 11px; font-weight: 600; fill: #ffffff; text-anchor: middle }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc }
      .card { fill: #0d1117; stroke: #3d444d }
      .head, .small { fill: #9198a1 }
      .box { fill: #212830; stroke: #4b535d }
      .user { fill: #0c2d4d; stroke: #1f6feb }
      .arrow { stroke: #6e7681 }
      .tip { fill: #6e7681 }
      .digit { fill: #ffffff }
      .memory { fill: #1f6feb }
    }
`

// svg draws p.
func (p *plan) svg() string {
	var s strings.Builder
	height := p.h + 58
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" `+
		`width="%.0f" height="%.0f" role="img" aria-labelledby="title desc">`+"\n",
		p.w, height, p.w, height)
	s.WriteString("  <title id=\"title\">The packages of ratelimit</title>\n")
	fmt.Fprintf(&s, "  <desc id=\"desc\">%s</desc>\n", p.describe())
	fmt.Fprintf(&s, "  <style>%s  </style>\n", style)
	rect(&s, "card", .5, .5, p.w-1, height-1, 8)
	text(&s, "title", margin, 38, "Where things are")
	bottom := p.rowsEnd()
	for _, l := range p.lanes {
		rect(&s, "lane", l.x, 58, l.w, bottom-58+16, 8)
		text(&s, "head", l.x+12, 80, l.title)
	}
	for _, row := range p.rows {
		for _, b := range row {
			b.arrows(&s)
		}
	}
	rect(&s, "lane", margin, bottom+38, p.w-2*margin, p.h-bottom-38, 8)
	text(&s, "head", margin+12, bottom+60, "tests and tools, which may import all of these")
	for _, row := range p.rows {
		for _, b := range row {
			b.draw(&s)
		}
	}
	for _, b := range p.apart {
		b.draw(&s)
	}
	p.legend(&s, p.h+34)
	s.WriteString("</svg>\n")
	return s.String()
}

// describe returns in words what the picture shows, except the sizes. A picture with the same words
// counts as up to date.
func (p *plan) describe() string {
	s := new(strings.Builder)
	s.WriteString("Packages as boxes, each above those that it imports.\n")
	describe := func(b *box) {
		if b.isBend() {
			return
		}
		fmt.Fprintf(s, "%s:", b.dir)
		for _, to := range b.imports {
			for to.isBend() {
				to = to.imports[0]
			}
			fmt.Fprintf(s, " imports %s;", to.dir)
		}
		for _, st := range b.steps {
			fmt.Fprintf(s, " %s %v;", st.way, st)
		}
		s.WriteString("\n")
	}
	for _, row := range slices.Backward(p.rows) {
		for _, b := range row {
			describe(b)
		}
	}
	for _, b := range slices.SortedFunc(slices.Values(p.apart), byDir) {
		describe(b)
	}
	return s.String()
}

func byDir(a, b *box) int { return strings.Compare(a.dir, b.dir) }

// rowsEnd returns where the lowest row ends.
func (p *plan) rowsEnd() (y float64) {
	for _, b := range p.rows[0] {
		y = max(y, b.y+b.h)
	}
	return y
}

func (b *box) draw(s *strings.Builder) {
	if b.isBend() {
		return
	}
	class := "box"
	if b.isPublic() {
		class = "box user"
	}
	rect(s, class, b.x, b.y, b.w, b.h, 6)
	text(s, "name", b.x+10, b.y+19, b.name())
	text(s, "small", b.x+10, b.y+34, b.small())
	x := b.x + b.w - 6
	for _, st := range slices.Backward(b.steps) {
		x -= st.width()
		st.draw(s, x, b.y+14)
		x -= stepGap
	}
}

// draw draws st with the middle of its left side at x and y.
func (st steps) draw(s *strings.Builder, x, y float64) {
	rect(s, st.way, x, y-8, st.width(), 16, 8)
	text(s, "digit", x+st.width()/2, y+4, st.String())
}

// arrows draws the arrows that begin at b: down to the end of its row, then to the next.
func (b *box) arrows(s *strings.Builder) {
	for _, to := range b.imports {
		from, begin, end := b.middle(), b.y+b.h, to.y
		bent := max(begin, end-rowGap)
		tip := 0.
		if !to.isBend() {
			tip = 6
		}
		fmt.Fprintf(s, `  <path class="arrow" d="M%.1f %.1fV%.1fC%.1f %.1f %.1f %.1f %.1f %.1f`,
			from, begin, bent, from, bent+rowGap/2, to.middle(), end-rowGap/2, to.middle(), end-tip)
		if to.isBend() {
			fmt.Fprintf(s, "V%.1f", end+to.h)
		}
		s.WriteString(`"/>` + "\n")
		if !to.isBend() {
			fmt.Fprintf(s, `  <path class="tip" d="M%.1f %.1fl-4 -7h8z"/>`+"\n", to.middle(), end)
		}
	}
}

func (p *plan) legend(s *strings.Builder, y float64) {
	x := float64(margin)
	for _, w := range ways {
		steps{w.class, 1, 1}.draw(s, x, y-4)
		text(s, "small", x+22, y, w.legend)
		x += 44 + 7*float64(len(w.legend))
	}
	rect(s, "box user", x, y-11, 16, 14, 3)
	text(s, "small", x+22, y, "public")
	x += 90
	rect(s, "box", x, y-11, 16, 14, 3)
	text(s, "small", x+22, y, "internal")
	text(s, "small", x+94, y, "A number in a box counts statements. "+
		"Imports that other arrows imply are left out.")
}

func rect(s *strings.Builder, class string, x, y, w, h, radius float64) {
	fmt.Fprintf(s, `  <rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="%.0f"/>`,
		class, x, y, w, h, radius)
	s.WriteByte('\n')
}

func text(s *strings.Builder, class string, x, y float64, words string) {
	fmt.Fprintf(s, `  <text class="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, x, y, words)
}
