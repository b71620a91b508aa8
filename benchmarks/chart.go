package main

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
)

// Sizes of a chart in pixels.
const (
	chartWidth = 700
	margin     = 20
	barsLeft   = 272
	barHeight  = 16
	rowHeight  = 24
	charWidth  = 7.5 // at most, in bold
)

const chartStyle = `
    text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
    text { fill: #1f2328 }
    .card { fill: #ffffff; stroke: #d1d9e0 }
    .title { font-size: 18px; font-weight: 600 }
    .group, .ours { font-weight: 600 }
    .note { fill: #59636e }
    .value { paint-order: stroke; stroke: #ffffff; stroke-width: 4px }
    rect.theirs { fill: #afb8c1 }
    rect.ours { fill: #218bff }
    rect.over { fill: #ff5a52 }
    line { stroke: #1f2328; stroke-dasharray: 3 3 }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc }
      .card { fill: #0d1117; stroke: #3d444d }
      .note { fill: #9198a1 }
      .value { stroke: #0d1117 }
      rect.theirs { fill: #656c76 }
      line { stroke: #f0f6fc }
    }
`

// A chart has horizontal bars of one scale, with their values as text.
type chart struct {
	title string
	notes []string
	mark  string // the text above a line at the value 1, or ""
	over  bool   // values above 1 are wrong
	// groups have their bars from top to bottom.
	groups []barGroup
}

type barGroup struct {
	title string // or ""
	bars  []bar
}

type bar struct {
	label string
	value float64
	text  string
	ours  bool
}

// sorted sorts the bars by their values: the smallest, or the largest, is the first.
func sorted(bars []bar, largest bool) []bar {
	slices.SortStableFunc(bars, func(a, b bar) int {
		if largest {
			a, b = b, a
		}
		return cmp.Compare(a.value, b.value)
	})
	return bars
}

// svg draws the chart for light and dark backgrounds.
func (c *chart) svg() string {
	var body strings.Builder
	text := func(class, anchor string, x, y float64, text string) {
		fmt.Fprintf(&body,
			"<text class=\"%s\" text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
			class, anchor, x, y, escape(text))
	}
	largest, chars := 0.0, 0
	for _, g := range c.groups {
		for _, bar := range g.bars {
			largest, chars = max(largest, bar.value), max(chars, len(bar.text))
		}
	}
	scale := (chartWidth - barsLeft - 2*margin - charWidth*float64(chars)) / largest
	rect := func(class string, from, to, y float64) {
		fmt.Fprintf(&body,
			"<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>\n",
			class, barsLeft+from*scale, y, max((to-from)*scale, 1), barHeight)
	}
	text("title", "start", margin, 34, c.title)
	y := 54.0
	for _, note := range c.notes {
		text("note", "start", margin, y, note)
		y += 18
	}
	if c.mark != "" {
		y += 8
		text("note", "middle", barsLeft+scale, y, c.mark)
		y += 6
	}
	top := y
	for _, g := range c.groups {
		if g.title != "" {
			y += rowHeight + 4
			text("group", "start", margin, y-9, g.title)
		}
		for _, bar := range g.bars {
			class, limit := "theirs", bar.value
			if bar.ours {
				class = "ours"
			}
			text(class, "start", margin, y+12.5, bar.label)
			if c.over {
				limit = min(limit, 1)
			}
			rect(class, 0, limit, y)
			if limit < bar.value {
				rect("over", limit, bar.value, y)
			}
			text("value "+class, "start", barsLeft+bar.value*scale+6, y+12.5, bar.text)
			y += rowHeight
		}
	}
	line := "" // behind the values
	if c.mark != "" {
		line = fmt.Sprintf("<line x1=\"%.1[1]f\" x2=\"%.1[1]f\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
			barsLeft+scale, top, y-4)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0[2]f" `+
		`width="%[1]d" height="%.0[2]f" role="img" aria-labelledby="title">
<title id="title">%[3]s</title>
<style>%[4]s</style>
<rect class="card" x=".5" y=".5" width="%[5]d" height="%.0[6]f" rx="8"/>
%[7]s%[8]s</svg>
`, chartWidth, y+8, escape(c.title), chartStyle, chartWidth-1, y+7, line, body.String())
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text))
	return b.String()
}
