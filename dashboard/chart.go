package dashboard

import (
	"errors"
	"fmt"
	"math"
	"net/http"
)

// A chart draws the history of a limit: all decisions, and in front of them those that admitted.
type chart struct {
	all, admitted string // paths of SVG
	highest       int64  // decisions in one column
}

const (
	columns       = 60
	columnSeconds = span / columns
	chartHeight   = 99
)

func (h *timeline) chart(s *series) (c chart) {
	var allOf, admittedOf [columns]int64
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range columns { // from left to right, the oldest first
		sum := h.sumLocked(s, (columns-1-i)*columnSeconds, columnSeconds)
		admittedOf[i] = sum[admitted]
		allOf[i] = sum[admitted] + sum[refused] + sum[undecided]
		c.highest = max(c.highest, allOf[i])
	}
	c.all, c.admitted = area(&allOf, c.highest), area(&admittedOf, c.highest)
	return c
}

// area returns the path of columns.
func area(numbers *[columns]int64, highest int64) string {
	path := fmt.Appendf(nil, "M0 %d", chartHeight)
	for i := 0; i < columns; {
		first := i
		for i < columns && numbers[i] == numbers[first] {
			i++
		}
		// What is not 0 is seen.
		height := math.Ceil(float64(numbers[first]) / float64(max(highest, 1)) * chartHeight)
		path = fmt.Appendf(path, "V%dh%d", chartHeight-int(height), i-first)
	}
	return string(fmt.Appendf(path, "V%dz", chartHeight))
}

// svg is a chart as a picture. Its colors can be seen on a light and on a dark page.
const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" ` +
	`preserveAspectRatio="none"><path fill="#d9534f" d="%s"/><path fill="#3f9d6a" d="%s"/></svg>`

// drawing serves the chart of a limit.
func (p *Page) drawing(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	s := (*p.history.limits.Load())[name]
	if s == nil || !p.only(r)(name) {
		p.fail(w, http.StatusNotFound, errNoLimit)
		return
	}
	c := p.history.chart(s)
	w.Header().Set("Content-Type", "image/svg+xml")
	_, _ = fmt.Fprintf(w, svg, columns, chartHeight, c.all, c.admitted)
}

var errNoLimit = errors.New("no such limit has decided")
