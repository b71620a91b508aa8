package dashboard

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// A snapshot is what a page has of all limits at an instant, for programs.
type snapshot struct {
	At     int64       `json:"at"` // in ms since the epoch
	Limits []limitView `json:"limits"`
	State  []Line      `json:"state"`
	Top    []topLimit  `json:"top"`
}

// A limitView has the decisions of a limit in the last second, minute and 15 minutes.
type limitView struct {
	name    string // as it is
	Name    string `json:"name"`
	Rate    string `json:"rate"`
	Trial   bool   `json:"trial,omitempty"`
	Second  view   `json:"second"`
	Minute  view   `json:"minute"`
	Quarter view   `json:"quarter"`
}

// A view shows counts.
type view struct {
	Admitted  int64 `json:"admitted"`
	Refused   int64 `json:"refused"`
	Undecided int64 `json:"undecided,omitempty"`
	Cached    int64 `json:"cached,omitempty"`
	Local     int64 `json:"local,omitempty"`
	Open      int64 `json:"open,omitempty"`
	Here      int64 `json:"here,omitempty"`
	Stricter  int64 `json:"stricter,omitempty"`
	Looser    int64 `json:"looser,omitempty"`
	Warned    int64 `json:"warned,omitempty"`
}

func newView(c counts) view {
	return view{c[admitted], c[refused], c[undecided], c[cached], c[local], c[open], c[here],
		c[stricter], c[looser], c[warned]}
}

func (p *Page) snapshot(now time.Time) *snapshot {
	s := &snapshot{At: now.UnixMilli(), Limits: []limitView{}, State: []Line{},
		Top: slices.DeleteFunc(p.refused.list(now), func(l topLimit) bool {
			return p.isTrial(l.Limit)
		})}
	blocks := make(map[string]bool)
	for _, a := range p.opts.Limits() {
		_, blocks[a.Limit().Name] = a.(algorithm.Block)
	}
	for _, l := range p.history.sorted() {
		s.Limits = append(s.Limits, p.history.view(l, blocks[l.name]))
	}
	for _, line := range p.state() {
		s.State = append(s.State, Line{Name: text(line.Name), Value: text(line.Value),
			Says: text(line.Says), Bad: line.Bad})
	}
	return s
}

// only returns what of s a viewer gets who may see some limits; nil means all.
func (s *snapshot) only(maySee func(limit string) bool) *snapshot {
	if maySee == nil {
		return s
	}
	own := &snapshot{At: s.At, Limits: []limitView{}, State: []Line{}, Top: []topLimit{}}
	for _, l := range s.Limits {
		if maySee(l.name) {
			own.Limits = append(own.Limits, l)
		}
	}
	for _, l := range s.Top {
		if maySee(l.Limit) {
			own.Top = append(own.Top, l)
		}
	}
	return own
}

func (h *timeline) view(l *series, blocks bool) limitView {
	limit := *l.limit.Load()
	shown := rate(limit)
	if blocks {
		shown = fmt.Sprintf("blocks for at most %v", limit.Window)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return limitView{
		name: l.name, Name: text(l.name), Rate: shown, Trial: l.trial,
		Second: newView(h.lastLocked(l, 1)), Minute: newView(*minute.inLocked(l)),
		Quarter: newView(*quarter.inLocked(l)),
	}
}

// rate returns a limit without its name, such as 60/1m0s.
func rate(l ratelimit.Limit) string { return fmt.Sprintf("%d/%v", l.Max, l.Window) }

// encode returns v in JSON.
func encode(v any) []byte {
	encoded, err := json.Marshal(v)
	if err != nil { // not of numbers and text
		panic(err)
	}
	return encoded
}
