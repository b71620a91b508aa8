package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// A keyView is what one limit says of a key.
type keyView struct {
	Limit, Key string
	Words      string
	Besides    string // other rates, one of which the key may have
	Trial      bool
	Remaining  int64
	Of         int64 // the Max
	Wait       time.Duration
	Until      time.Duration // until all units are free
	Steps      []step        // in order of time, after now
	Rounded    bool          // not each unit was looked up
	Block      bool          // Of is how long the key may be blocked, in ms
	Holds      bool          // units of it may be held
	InFlight   bool
	Err        *failure

	Subject subject
}

// Used returns the units that are not free.
func (v *keyView) Used() int64 { return max(0, v.Of-v.Remaining) }

// High returns the units from which a bar has another color: those of a limit that refuses.
func (v *keyView) High() int64 {
	if v.Refuses() {
		return 0
	}
	return v.Of
}

// Refuses reports whether the limit refuses a call of one unit.
func (v *keyView) Refuses() bool { return v.Err == nil && v.Wait > 0 }

// Says says what the limit refuses and until when, or what is used of it.
func (v *keyView) Says() string {
	switch {
	case v.Err != nil:
		return v.Limit + " cannot be looked up: " + v.Err.Says
	case v.Block && v.Refuses():
		return fmt.Sprintf("%s blocks this key for %s.", v.Limit, length(v.Wait))
	case v.Block:
		return v.Limit + " does not block this key."
	case !v.Refuses():
		return fmt.Sprintf("%s has used %s of %s.", v.Limit, number(v.Used()), number(v.Of))
	}
	verb := "refuses"
	if v.Trial {
		verb = "would refuse"
	}
	says := fmt.Sprintf("%s %s this key: %s of %s used. ", v.Limit, verb, number(v.Used()),
		number(v.Of))
	if v.Besides != "" {
		says = fmt.Sprintf("%s %s this key at %s, if it has no other rate (%s): %s of %s used. ",
			v.Limit, verb, v.Words, v.Besides, number(v.Used()), number(v.Of))
	}
	if v.InFlight {
		return says + "The next is free when a call ends, at the latest in " + length(v.Wait) + "."
	}
	return says + "The next unit is free in " + length(v.Wait) + ", all in " + length(v.Until) + "."
}

// Free says how many units are free, and when more are.
func (v *keyView) Free() string {
	switch {
	case v.Refuses():
		return "next in " + length(v.Wait) + ", all in " + length(v.Until)
	case v.Until > 0:
		return number(v.Remaining) + " free now, all in " + length(v.Until)
	}
	return number(v.Remaining) + " free now"
}

// Plot returns the chart of when units are free, or nil if all are.
func (v *keyView) Plot() *stepPlot {
	if len(v.Steps) == 0 {
		return nil
	}
	last := v.Steps[len(v.Steps)-1].In
	height := func(free int64) int {
		return chartHeight - int(float64(chartHeight)*float64(free)/float64(v.Of))
	}
	path := fmt.Appendf(nil, "M0 %dV%d", chartHeight, height(v.Remaining))
	for _, s := range v.Steps {
		share := float64(s.In) / float64(max(last, 1)) // of years a product of integers overflows
		path = fmt.Appendf(path, "H%dV%d", int(stepWidth*share), height(s.Free))
	}
	p := &stepPlot{Path: string(fmt.Appendf(path, "H%dV%dz", stepWidth+stepWidth/50, chartHeight)),
		Width: stepWidth + stepWidth/50, Height: chartHeight,
		Scale: [2]string{compact(float64(v.Of)), compact(float64(v.Of) / 2)}}
	for i := range p.Axis {
		p.Axis[i] = "in " + length(last*time.Duration(i)/time.Duration(len(p.Axis)-1))
	}
	p.Axis[0] = "now"
	return p
}

// stepWidth is the width of the chart of steps, without the end, where all units are free.
const stepWidth = 1000

// A stepPlot is a chart of units that are free from a time on.
type stepPlot struct {
	Path          string
	Width, Height int
	Scale         [2]string
	Axis          [5]string
}

// subject names a limit and a key in a form, as they are.
type subject struct{ Name, Key string }

// A step is how many units are free from a time on, if nothing else is taken.
type step struct {
	In   time.Duration
	Free int64
}

// maxSteps is how many steps are looked up: each costs a peek.
const maxSteps = 48

// everywhere is the default of Find.
func (p *Page) everywhere(text string) (all []Subject, err error) {
	for _, a := range p.opts.Limits() {
		all = append(all, Subject{a, text})
	}
	return all, nil
}

// viewOf looks a key up. It only peeks, so it works with every algorithm and store, and changes
// nothing: units that are free after a wait are those for which a demand is refused until then.
func (p *Page) viewOf(ctx context.Context, s Subject) *keyView {
	limit := s.Limit.Limit()
	v := &keyView{Limit: text(limit.Name), Key: text(s.Key), Words: p.words(limit, s.Limit),
		Of: limit.Max, Subject: subject{limit.Name, s.Key}}
	_, v.Block = s.Limit.(algorithm.Block)
	_, v.Holds = s.Limit.(driver.Holder)
	if held, ok := s.Limit.(algorithm.Held); ok {
		v.InFlight = held.InFlight()
	}
	v.Trial = p.isTrial(limit.Name)
	if err := p.peek(ctx, s, v); err != nil {
		v.Err = failureOf(err)
	}
	return v
}

// peek looks up what v says of its key.
func (p *Page) peek(ctx context.Context, s Subject, v *keyView) error {
	l, err := ratelimit.New(p.opts.Store, s.Limit)
	if err != nil {
		return err
	}
	res, err := l.Peek(ctx, s.Key)
	if err != nil {
		return err
	}
	v.Remaining, v.Wait, v.Until = res.Remaining, res.RetryAfter, res.ResetAfter
	if v.Block {
		return nil
	}
	v.Steps, err = steps(ctx, l, s.Key, res)
	v.Rounded = v.Of-res.Remaining > maxSteps
	return err
}

// steps peeks for numbers of units between those that are free and Max.
func steps(
	ctx context.Context, l *ratelimit.Limiter, key string, now ratelimit.Result,
) ([]step, error) {
	used := max(0, l.Max()-now.Remaining)
	n := int(min(used, maxSteps))
	all, errs := make([]step, n), make([]error, n)
	var peeks sync.WaitGroup
	for i := range all {
		peeks.Go(func() {
			free := now.Remaining + used*int64(i+1)/int64(n)
			results, err := ratelimit.PeekAll(ctx, ratelimit.Claim{Limiter: l, Key: key, N: free})
			if errs[i] = err; err == nil {
				all[i] = step{results[0].RetryAfter, free}
			}
		})
	}
	peeks.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	// What is taken meanwhile may put a later step first.
	slices.SortFunc(all, func(a, b step) int { return cmp.Compare(a.Free, b.Free) })
	return together(all, min(l.Limits()[0].Window/100, 100*time.Millisecond)), nil
}

// together returns steps in order of their units, and one, the last, for those that are no later
// than near after the first of them, as those of one take are: the peeks are not at the same
// instant.
func together(steps []step, near time.Duration) []step {
	var apart []step
	var first time.Duration
	for _, s := range steps {
		if n := len(apart); n > 0 && s.In-first <= near {
			s.In = max(s.In, apart[n-1].In)
			apart = apart[:n-1]
		} else {
			first = s.In
		}
		apart = append(apart, s)
	}
	return apart
}
