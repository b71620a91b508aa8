package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// A Rule is what a program knows of a limit beside its algorithm.
type Rule struct {
	// Keys says whose units are counted together, after the rate, such as "for each tenant". Empty
	// means "for each key".
	Keys string
	// Besides, if not nil, says which other rates the limit has, such as "3,000 a minute by
	// plan=pro". A list of up to 60 limits shows it after that of [Options.Limits].
	Besides func() string
	// Shared means that all calls have one key, so that the rate of the limit is that of all
	// decisions, and the chart has a line for it.
	Shared bool
	// Lines, if not nil, returns what the page of the limit shows, such as its conditions and its
	// place in a file.
	Lines func() []Line
}

// rule returns what is known of a limit.
func (p *Page) rule(limit string) (r Rule) {
	if p.opts.Rule != nil {
		r = p.opts.Rule(limit)
	}
	r.Keys = cmp.Or(r.Keys, "for each key")
	return r
}

// besides returns the other rates of a limit.
func (p *Page) besides(limit string) string {
	if besides := p.rule(limit).Besides; besides != nil {
		return text(besides())
	}
	return ""
}

// A row is what the list says of a limit.
type row struct {
	limit   string // as it is
	refused int64
	all     int64 // decisions

	Name    string   `json:"name"`
	Used    int      `json:"used"`  // the largest share that a key has used, in %
	Cells   []string `json:"cells"` // of the table, from Used on
	Notes   string   `json:"notes"`
	Words   string   `json:"-"` // the rule
	Trial   bool     `json:"-"`
	Decided bool     `json:"-"`
	Peak    string   `json:"-"` // of the chart, without which the row has no chart
	Group   *group   `json:"-"` // that begins here
}

// refusals returns what callers were refused: a trial refuses nothing.
func (r *row) refusals() int64 {
	if r.Trial {
		return 0
	}
	return r.refused
}

// A group are limits whose names begin alike.
type group struct {
	Prefix  string
	Limits  int
	all     int64
	refused int64
}

// Refused returns the share that the group refuses.
func (g *group) Refused() string { return percent(g.refused, g.all) }

// recentSeconds is over how many seconds the list averages what it calls now.
const recentSeconds = 10

// rows returns those of all limits that have decided, sorted by name, and with idle also those that
// have not.
func (p *Page) rows(c choice, maySee func(string) bool, idle bool) (rows []row) {
	h := &p.history
	algorithms := p.algorithms()
	may := func(limit string) bool { return maySee == nil || maySee(limit) }
	h.mu.Lock()
	for _, s := range *h.limits.Load() {
		if !may(s.name) {
			continue
		}
		a := algorithms[s.name]
		_, blocks := a.(algorithm.Block)
		of := c.Range.inLocked(s)
		now := h.lastLocked(s, recentSeconds)
		used := (h.fullestLocked(s, c.Range) + 9) / 10
		share := fmt.Sprint(used, " %")
		if blocks {
			used, share = 0, "–"
		}
		all := of[admitted] + of[refused]
		rows = append(rows, row{limit: s.name, refused: of[refused], all: all + of[undecided],
			Name: text(s.name), Used: used, Trial: s.trial, Decided: true,
			Cells: []string{share, perSecond(now[admitted]+now[refused]+now[undecided],
				h.ageLocked(&timeRange{seconds: recentSeconds})),
				number(of[admitted]), number(of[refused]), percent(of[refused], all)},
			Notes: notes(of, s.open.Load())})
	}
	h.mu.Unlock()
	if idle {
		decided := *h.limits.Load()
		for name := range algorithms {
			if decided[name] == nil && may(name) {
				rows = append(rows, row{limit: name, Name: text(name),
					Cells: []string{"–", "0/s", "0", "0", "0 %"}})
			}
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.limit, b.limit) })
	return rows
}

// algorithms returns those of the limits by their names.
func (p *Page) algorithms() map[string]ratelimit.Algorithm {
	all := make(map[string]ratelimit.Algorithm)
	for _, a := range p.opts.Limits() {
		all[a.Limit().Name] = a
	}
	return all
}

// setWords sets the rules of rows: those in force, not that of the last decision, which may have
// had another rate.
func (p *Page) setWords(rows []row) {
	algorithms, decided := p.algorithms(), *p.history.limits.Load()
	for i, r := range rows {
		if a := algorithms[r.limit]; a != nil {
			rows[i].Words = p.words(a.Limit(), a)
		} else if s := decided[r.limit]; s != nil {
			rows[i].Words = p.words(*s.limit.Load(), nil)
		}
		if len(rows) > mostRows {
			continue // each may cost a look at all rates of all limits
		}
		if besides := p.besides(r.limit); besides != "" {
			rows[i].Words += ", " + besides
		}
	}
}

// words returns the rule of a limit as people say it.
func (p *Page) words(limit ratelimit.Limit, a ratelimit.Algorithm) string {
	if _, ok := a.(algorithm.Block); ok {
		return inWords(limit, a)
	}
	said := inWords(limit, a) + " " + p.rule(limit.Name).Keys
	if held, ok := a.(algorithm.Held); ok && !held.InFlight() {
		said += ", a budget"
	}
	return said
}

// notes returns what a limit's decisions were beside admitted and refused.
func notes(c *counts, holds int64) string {
	var all []string
	for _, n := range []struct {
		n    int64
		text string
	}{
		{c[undecided], "%s undecided"}, {c[cached], "%s refused from memory"},
		{c[local], "%s decided locally"}, {c[open], "%s admitted by the policy"},
		{c[here], "%s from units taken ahead"}, {c[warned], "%s with a warning"},
		{c[stricter], "would refuse %s that the live limits admit"},
		{c[looser], "would admit %s that the live limits refuse"}, {holds, "%s open holds"},
	} {
		if n.n > 0 {
			all = append(all, fmt.Sprintf(n.text, number(n.n)))
		}
	}
	return strings.Join(all, ", ")
}

// A list is the part of the rows that a viewer has chosen.
type list struct {
	Rows  []row
	Found int   // rows that match, of which Rows may be the first ones
	Of    int   // all limits
	At    int64 // when it was made: a browser fetches the charts of another list again
}

// mostRows is how many rows are shown at first.
const mostRows = 60

func (p *Page) list(c choice, maySee func(string) bool) (l list) {
	rows := p.rows(c, maySee, true)
	l.Of, l.At = len(rows), time.Now().Unix()
	filter := strings.ToLower(c.Filter)
	rows = slices.DeleteFunc(rows, func(r row) bool {
		return c.Refusing && r.refused == 0 || !strings.Contains(strings.ToLower(r.Name), filter)
	})
	l.Found = len(rows)
	switch c.Sort {
	case "refused":
		slices.SortStableFunc(rows, func(a, b row) int {
			return cmp.Or(cmp.Compare(b.refusals(), a.refusals()),
				cmp.Compare(b.refused, a.refused), cmp.Compare(b.all, a.all))
		})
	case "used":
		slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(b.Used, a.Used) })
	default:
		groups(rows)
	}
	if !c.All {
		rows = rows[:min(len(rows), mostRows)]
	}
	p.setWords(rows)
	h := &p.history
	for i, r := range rows {
		if !r.Decided {
			continue
		}
		if s := (*h.limits.Load())[r.limit]; s != nil {
			peak, _ := highest(h.columns(s, c.Range, columns))
			rows[i].Peak = perSecond(peak, int(c.Range.column(columns).Seconds()))
		}
	}
	l.Rows = rows
	return l
}

// groups sets where groups begin in rows that are sorted by their names.
func groups(rows []row) {
	for i := 0; i < len(rows); {
		g := group{Prefix: prefixOf(rows[i].Name)}
		first := i
		for ; i < len(rows) && prefixOf(rows[i].Name) == g.Prefix; i++ {
			if !rows[i].Trial {
				g.all += rows[i].all
				g.refused += rows[i].refused
			}
		}
		if g.Limits = i - first; g.Limits > 1 {
			rows[first].Group = &g
		}
	}
}

// prefixOf returns what is before the first separator of a name, or all of it.
func prefixOf(name string) string {
	if i := strings.IndexAny(name, "-_./:|"); i > 0 {
		return name[:i]
	}
	return name
}
