package dashboard

import (
	"errors"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"strings"
	"time"
)

const (
	columns     = 60 // of the chart of a limit in the list
	chartHeight = 99
)

// A chart draws decisions: all of them, in front of them those that were decided, and in front of
// these those that admitted.
type chart struct {
	all, decided, admitted string // paths of SVG
}

func newChart(of []counts, top int64) chart {
	return chart{
		area(of, top, func(c *counts) int64 { return c[admitted] + c[refused] + c[undecided] }),
		area(of, top, func(c *counts) int64 { return c[admitted] + c[refused] }),
		area(of, top, func(c *counts) int64 { return c[admitted] }),
	}
}

// highest returns the decisions in the highest column, and which it is.
func highest(of []counts) (n int64, column int) {
	for i, c := range of {
		if sum := c[admitted] + c[refused] + c[undecided]; sum > n {
			n, column = sum, i
		}
	}
	return n, column
}

// area returns the path of columns.
func area(of []counts, top int64, number func(*counts) int64) string {
	path := fmt.Appendf(nil, "M0 %d", chartHeight)
	for i := 0; i < len(of); {
		first, n := i, number(&of[i])
		for i < len(of) && number(&of[i]) == n {
			i++
		}
		// What is not 0 is seen.
		height := math.Ceil(float64(n) / float64(max(top, 1)) * chartHeight)
		path = fmt.Appendf(path, "V%dh%d", chartHeight-int(height), i-first)
	}
	return string(fmt.Appendf(path, "V%dz", chartHeight))
}

// svg is a chart as a picture. Its colors can be seen on a light and on a dark page.
const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" ` +
	`preserveAspectRatio="none">%s<path fill="#e8912d" d="%s"/><path fill="#4a93c4" d="%s"/></svg>`

// drawing serves the chart of a limit in the list.
func (p *Page) drawing(w http.ResponseWriter, r *http.Request) {
	s, ok := p.asked(w, r)
	if !ok {
		return
	}
	of := p.history.columns(s, choiceOf(r.URL).Range, columns)
	top, _ := highest(of)
	c := newChart(of, top)
	w.Header().Set("Content-Type", "image/svg+xml")
	behind := ""
	if c.all != c.decided {
		behind = `<path fill="#e0533d" d="` + c.all + `"/>`
	}
	_, _ = fmt.Fprintf(w, svg, columns, chartHeight, behind, c.decided, c.admitted)
}

var errNoLimit = errors.New("no such limit has decided")

func (h *timeline) columns(s *series, r *timeRange, n int) []counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.columnsLocked(s, r, n)
}

// A plot is a chart with its axes, its legend and its values.
type plot struct {
	Title     string
	Says      string // in place of the picture
	Columns   int
	Height    int
	All       string
	Decided   string
	Admitted  string
	Undecided bool             // the legend has it
	Scale     [2]string        // the highest value of the axis, and half of it
	Peak      string           // the highest column
	PeakAt    template.HTML    // when it began
	Axis      [5]template.HTML // times, from the left to the right; the last one is now
	Each      string           // the length of a column
	Rows      template.HTML    // of the table: numbers and times only
	Line      int              // the height of the limit's line; 0: it has none
	LineSays  string           // what it is
}

// plot returns the chart of a series with a limit of so many decisions a second; 0 draws none.
func (h *timeline) plot(s *series, c choice, title string, limit float64) *plot {
	r := c.Range
	h.mu.Lock()
	of, now := h.columnsLocked(s, r, r.columns), h.at
	h.mu.Unlock()
	if now.IsZero() {
		now = time.Now()
	}
	each := r.column(r.columns)
	peak, at := highest(of)
	perColumn := limit * each.Seconds()
	if perColumn > 4*float64(peak) {
		perColumn = 0 // the decisions would be a line too
	}
	top := niceTop(max(float64(peak), perColumn) / each.Seconds())
	drawn := newChart(of, int64(math.Ceil(top*each.Seconds())))
	begin := func(column int) time.Time {
		return now.Add(-time.Duration(r.columns-column) * each).Truncate(time.Second)
	}
	seconds := int(each.Seconds())
	p := &plot{Title: title, Columns: r.columns, Height: chartHeight, All: drawn.all,
		Decided: drawn.decided, Admitted: drawn.admitted, Each: length(each),
		Scale: [2]string{compact(top) + "/s", compact(top/2) + "/s"},
		Peak:  perSecond(peak, seconds), PeakAt: clock(begin(at), r == minute)}
	for i := range p.Axis {
		p.Axis[i] = clock(begin(i*r.columns/(len(p.Axis)-1)), r == minute)
	}
	p.Axis[len(p.Axis)-1] = "now"
	var sum counts
	var rows strings.Builder // a template would take most of the time of a page
	for i, c := range of {
		for k, n := range c {
			sum[k] += n
		}
		for _, part := range []string{"\n<tr><th scope=\"row\">", string(clock(begin(i), true)),
			"<td>", number(c[admitted]), "<td>", number(c[refused]), "<td>", number(c[undecided])} {
			rows.WriteString(part)
		}
	}
	p.Rows = template.HTML(rows.String())
	p.Undecided = sum[undecided] > 0
	p.Says = fmt.Sprintf("Decisions of the last %s: %s admitted, %s refused, %s undecided",
		r.Text, number(sum[admitted]), number(sum[refused]), number(sum[undecided]))
	if perColumn > 0 {
		p.Line = chartHeight - int(math.Round(limit/top*chartHeight))
		p.LineSays = "the limit, " + short(limit) + "/s"
	}
	return p
}

// niceTop returns the least round number that is not below v, of which a half is round too.
func niceTop(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 1.2, 1.6, 2, 3, 4, 5, 6, 8} {
		if m*power >= v {
			return m * power
		}
	}
	return 10 * power
}
