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
	Rate       string
	Remaining  int64
	Of         int64 // the Max
	Wait       time.Duration
	Until      time.Duration // until all units are free
	Steps      []step        // in order of time, after now
	Rounded    bool          // not each unit was looked up
	Block      bool          // Of is how long the key may be blocked, in ms
	Holds      bool          // units of it may be held
	Err        error

	Subject subject
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
func (p *Page) viewOf(ctx context.Context, s Subject) keyView {
	limit := s.Limit.Limit()
	v := keyView{Limit: text(limit.Name), Key: text(s.Key), Rate: rate(limit), Of: limit.Max,
		Subject: subject{limit.Name, s.Key}}
	_, v.Block = s.Limit.(algorithm.Block)
	_, v.Holds = s.Limit.(driver.Holder)
	l, err := ratelimit.New(p.opts.Store, s.Limit)
	if err != nil {
		v.Err = err
		return v
	}
	res, err := l.Peek(ctx, s.Key)
	if err != nil {
		v.Err = err
		return v
	}
	v.Remaining, v.Wait, v.Until = res.Remaining, res.RetryAfter, res.ResetAfter
	if !v.Block {
		v.Steps, v.Err = steps(ctx, l, s.Key, res)
		v.Rounded = limit.Max-res.Remaining > maxSteps
	}
	return v
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
			return nil, fmt.Errorf("the steps: %w", err)
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
