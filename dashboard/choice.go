package dashboard

import (
	"html/template"
	"net/url"
	"strings"
	"time"
)

// A choice is what a viewer has chosen to see. All links keep it.
type choice struct {
	Range    *timeRange
	Sort     string // refused, used or name
	Filter   string // a part of a name
	Refusing bool   // only limits that refuse
	All      bool   // all rows
}

// A timeRange is a time until now of which the page shows what was decided.
type timeRange struct {
	Name    string // in a link
	Text    string
	seconds int
	columns int // of the chart of all decisions
	recent  int // seconds that are compared with the others
}

// The ranges. A column of a chart is whole seconds of the first two, and whole slots of the last.
var (
	minute   = &timeRange{"1m", "1 min", 60, 60, 10}
	quarter  = &timeRange{"15m", "15 min", 15 * 60, 90, 60}
	hour     = &timeRange{"60m", "60 min", 60 * 60, 120, 60}
	ranges   = []*timeRange{minute, quarter, hour}
	sortings = []string{"refused", "used", "name"}
)

// column returns how long a column is if there are so many.
func (r *timeRange) column(columns int) time.Duration {
	return time.Duration(r.seconds/columns) * time.Second
}

func choiceOf(u *url.URL) choice {
	q := u.Query()
	c := choice{Range: quarter, Sort: sortings[0], Filter: q.Get("filter"),
		Refusing: q.Has("refusing"), All: q.Has("all")}
	for _, r := range ranges {
		if q.Get("range") == r.Name {
			c.Range = r
		}
	}
	for _, s := range sortings {
		if q.Get("sort") == s {
			c.Sort = s
		}
	}
	return c
}

// query returns c as the query of a link.
func (c choice) query() string {
	q := make(url.Values)
	if c.Range != quarter {
		q.Set("range", c.Range.Name)
	}
	if c.Sort != sortings[0] {
		q.Set("sort", c.Sort)
	}
	if c.Filter != "" {
		q.Set("filter", c.Filter)
	}
	if c.Refusing {
		q.Set("refusing", "yes")
	}
	if c.All {
		q.Set("all", "yes")
	}
	return q.Encode()
}

// Index returns the link to the list.
func (c choice) Index() template.URL {
	if q := c.query(); q != "" {
		return template.URL("./?" + q)
	}
	return "./"
}

// Query returns what follows the path of a form.
func (c choice) Query() template.URL {
	return template.URL(strings.TrimSuffix("?"+c.query(), "?"))
}

// And returns what follows other parameters of a link.
func (c choice) And() template.URL {
	if q := c.query(); q != "" {
		return template.URL("&" + q)
	}
	return ""
}

// These return the choice with a change.

func (c choice) In(r *timeRange) choice    { c.Range = r; return c }
func (c choice) By(sort string) choice     { c.Sort = sort; return c }
func (c choice) Only(refusing bool) choice { c.Refusing = refusing; return c }
func (c choice) Like(filter string) choice { c.Filter = filter; return c }
func (c choice) Whole() choice             { c.All = true; return c }

// Ranges and Sortings are what can be chosen.
func (c choice) Ranges() []*timeRange { return ranges }
func (c choice) Sortings() []string   { return sortings }
