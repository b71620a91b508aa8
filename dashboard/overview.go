package dashboard

import (
	"fmt"
	"html/template"
	"strings"
	"time"
)

// An overview says in a sentence how things are, and in numbers.
type overview struct {
	Title    string
	Problems []template.HTML // that somebody has to act on
	Says     template.HTML   // how things are, in bold
	More     []template.HTML
	Totals   []total
	Plot     *plot
	State    []stateLine
	Empty    bool // nothing was decided
	Try      string
}

// A total is a large number.
type total struct {
	Name, Value, Trend, Below string
	Bad                       bool
	Refusing                  bool // it leads to the limits that refuse
}

type stateLine struct {
	Name  string
	Value template.HTML
	Bad   bool
}

// state returns what Options.State says, and whether the page is closed, for a viewer who may see
// all limits.
func (p *Page) state() []Line {
	var lines []Line
	if p.viewers.ended() {
		lines = append(lines, Line{Name: "this page", Value: "closed: the numbers are old",
			Says: "This page is closed: the numbers are old.", Bad: true})
	}
	if p.opts.State != nil {
		lines = append(lines, p.opts.State()...)
	}
	return lines
}

func (p *Page) overview(c choice, maySee func(string) bool) overview {
	refusing, limits := p.refusing(c, maySee)
	var state []Line
	if maySee == nil {
		state = p.state()
	}
	s := p.history.totalOf(maySee)
	o := overview{Title: "Limits", Plot: p.history.plot(s, c, "Decisions a second", 0)}
	if p.opts.Try != nil && maySee == nil {
		o.Try = p.opts.Try()
	}
	for _, l := range state {
		o.State = append(o.State, stateLine{text(l.Name), prose(l.Value), l.Bad})
		switch {
		case l.Bad && len(o.Problems) == 0:
			problem, _, _ := strings.Cut(sinceInstant.ReplaceAllString(said(l), ""), ":")
			o.Title = "● " + text(problem)
			fallthrough
		case l.Bad:
			o.Problems = append(o.Problems, prose(said(l)))
		case l.Says != "" && o.Says == "":
			o.Says = prose(l.Says)
		case l.Says != "":
			o.More = append(o.More, prose(l.Says))
		}
	}
	h := &p.history
	h.mu.Lock()
	defer h.mu.Unlock()
	of, last := *c.Range.inLocked(s), *minute.inLocked(s)
	seconds := h.ageLocked(minute)
	decided := last[admitted] + last[refused]
	all := decided + last[undecided]
	rate := "No decision in the last minute."
	if all > 0 {
		rate = fmt.Sprintf("%s decisions a second, %s refused.",
			strings.TrimSuffix(perSecond(all, seconds), "/s"), percent(last[refused], decided))
		if last[refused] == 0 {
			rate = strings.Replace(rate, "0 % refused", "none refused", 1)
		}
	}
	o.More = append([]template.HTML{template.HTML(template.HTMLEscapeString(rate))}, o.More...)
	if len(o.Problems) == 0 && last[refused]*100 >= decided && last[refused] > 0 {
		o.Title = "● " + percent(last[refused], decided) + " refused"
	}
	o.Empty = of[admitted]+of[refused]+of[undecided] == 0

	recent := h.lastLocked(s, c.Range.recent)
	age, recently := h.ageLocked(c.Range), min(h.seconds, c.Range.recent)
	in := "in " + c.Range.Text
	if age < c.Range.seconds {
		in = "in " + length(time.Duration(age)*time.Second) // since the process began
	}
	admittedTrend, refusedTrend := "", ""
	if rest := age - recently; rest >= recently {
		admittedTrend = trend(float64(recent[admitted])/float64(recently),
			float64(of[admitted]-recent[admitted])/float64(rest))
		refusedTrend = points(share(recent), share(minus(of, recent)))
	}
	o.Totals = []total{
		{Name: "Admitted", Value: perSecond(recent[admitted], recently), Trend: admittedTrend,
			Below: number(of[admitted]) + " " + in},
		{Name: "Refused", Value: percent(recent[refused], recent[admitted]+recent[refused]),
			Trend: refusedTrend, Below: number(of[refused]) + " " + in},
		{Name: "Undecided", Value: number(of[undecided]), Below: in, Bad: of[undecided] > 0},
		{Name: "Limits that refuse", Value: number(int64(refusing)),
			Below: fmt.Sprintf("of %s, %s", number(int64(limits)), in), Refusing: true},
	}
	return o
}

// refusing returns how many limits but trials have refused in a range, and how many there are.
func (p *Page) refusing(c choice, maySee func(string) bool) (refusing, limits int) {
	may := func(limit string) bool { return maySee == nil || maySee(limit) }
	h := &p.history
	decided := *h.limits.Load()
	for _, a := range p.opts.Limits() {
		if name := a.Limit().Name; decided[name] == nil && may(name) {
			limits++
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range decided {
		if !may(s.name) {
			continue
		}
		limits++
		if !s.trial && c.Range.inLocked(s)[refused] > 0 {
			refusing++
		}
	}
	return refusing, limits
}

// said returns a line as a sentence.
func said(l Line) string {
	if l.Says != "" {
		return l.Says
	}
	return l.Name + ": " + l.Value
}

func minus(a, b counts) counts {
	for k := range a {
		a[k] -= b[k]
	}
	return a
}

// share returns what was refused of what was decided, in percent.
func share(c counts) float64 {
	return 100 * float64(c[refused]) / float64(max(c[admitted]+c[refused], 1))
}

// trend returns by how many percent now is more than before, such as +4 %.
func trend(now, before float64) string {
	if before == 0 {
		return ""
	}
	change := 100 * (now - before) / before
	if change < 1 && change > -1 {
		return "steady"
	}
	return fmt.Sprintf("%+.0f %%", change)
}

// points returns by how many points one share is more than another, such as +1.9 points.
func points(now, before float64) string {
	change := now - before
	if change < 0.1 && change > -0.1 {
		return "steady"
	}
	return fmt.Sprintf("%+.1f points", change)
}

// since returns when the page began to count.
func (h *timeline) since() (at time.Time, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at.Add(-time.Duration(h.seconds) * time.Second), h.seconds > 0
}
