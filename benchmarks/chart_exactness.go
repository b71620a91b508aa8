package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/truewindow/ratelimit/internal/svg"
)

// Sizes of the bars, in pixels.
const (
	barLeft = 275
	barFull = 300 // length of the longest bar
	barStep = 22  // from one bar to the next
)

// writeExactness draws the most that each entry admitted in any rolling window, divided by its
// limit.
func (r *report) writeExactness(w io.Writer) error {
	places := []struct{ title, entries, subject string }{
		{"in process", inProcessEntries, "exact-memory"},
		{"on Redis", serverEntries, "exact-redis"},
	}
	worst := func(subject string) column {
		return column{subject: subject, metric: "worst", where: "aimed and random"}
	}
	var texts []string
	most, rows := number(1), 0
	for _, place := range places {
		for _, e := range r.Entries[place.entries] {
			v := r.find(worst(place.subject), e.Name)
			if v == nil {
				continue
			}
			most = max(most, v.Median)
			texts = append(texts, fmt.Sprintf("%s, %s: %v", chartName(e.Name), place.title,
				v.Median))
			rows++
		}
	}
	height := 130 + barStep*(rows+2*len(places))
	p := svg.New(height, "Most admitted in any rolling window, divided by the limit",
		strings.Join(texts, "; ")+".")
	p.Text("small", 24, 55, "start",
		"Bursts aimed at the edges of windows, and random bursts. 1 means that the limit is "+
			"never exceeded.")
	at := func(v number) float64 { return barLeft + barFull*float64(v)/float64(most) }
	y := 92.0
	for _, place := range places {
		p.Text("name", 24, y, "start", place.title)
		y += barStep
		for _, e := range r.Entries[place.entries] {
			v := r.find(worst(place.subject), e.Name)
			if v == nil {
				continue
			}
			text := v.Median.String()
			wrong := worst(place.subject)
			wrong.metric = "wrong"
			if w := r.find(wrong, e.Name); w != nil && w.Median > 0 {
				text += ", " + percent(w) + " of refusals wrong"
			}
			p.Text("small", barLeft-8, y, "end", chartName(e.Name))
			p.Printf(`<rect fill="%s" x="%d" y="%.0f" width="%.1f" height="14"/>`,
				colourOf(e.Name), barLeft, y-11, at(v.Median)-barLeft)
			p.Text("small", at(v.Median)+8, y, "start", text)
			y += barStep
		}
		y += barStep
	}
	p.Printf(`<path class="limit" d="M%.1f 78V%.0f"/>`, at(1), y-barStep)
	p.Text("small", at(1), y, "middle", "the limit")
	_, err := p.WriteTo(w)
	return err
}

// chartName returns the name of an entry in charts.
func chartName(entry string) string {
	if client, ok := strings.CutPrefix(entry, ours); ok {
		return "this module" + client
	}
	return entry
}
