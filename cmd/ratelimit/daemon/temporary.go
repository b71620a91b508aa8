package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// temporary returns the rates of a set that end, and are not over at a time.
func temporary(set *rules.Set, now time.Time) (rates []*rules.Variant) {
	for _, v := range set.Variants() {
		if !v.Until.IsZero() && now.Before(v.Until) {
			rates = append(rates, v)
		}
	}
	return rates
}

// textsOf returns rates such as "units 5000/1m0s except tenant=acme until 2026-12-04T18:00:00Z".
func textsOf(rates []*rules.Variant) []string {
	texts := make([]string, len(rates))
	for i, v := range rates {
		texts[i] = textOf(v)
	}
	return texts
}

func textOf(v *rules.Variant) string {
	return fmt.Sprintf("%s %s %s", v.Limit.Name, v.RateText(), v.Why)
}

// mostListed is how many rates a line names.
const mostListed = 10

// listed returns rates as one text, or "" without any.
func listed(rates []*rules.Variant) string {
	text := strings.Join(textsOf(rates[:min(mostListed, len(rates))]), "; ")
	if n := len(rates) - mostListed; n > 0 {
		text += fmt.Sprintf("; and %d more", n)
	}
	return text
}

// A temporaryLog logs which rates that end have begun and ended, also for the audit. The zero
// temporaryLog has none.
type temporaryLog struct {
	trail *audit.Trail // or nil

	mu     sync.Mutex
	log    *slog.Logger
	rates  []*rules.Variant // in force
	timer  *time.Timer      // of the next end, or nil
	closed bool
}

// use logs what a set begins, and what it ends before its time.
func (t *temporaryLog) use(log *slog.Logger, set *rules.Set) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = log
	t.end()
	before, now := t.rates, temporary(set, time.Now())
	t.rates = now
	t.write("rates begin that end by themselves", "raise", without(now, before))
	t.write("rates end before their time", "raise_ends", without(before, now))
	t.wait()
}

// without returns rates whose texts are not among those of others.
func without(rates, others []*rules.Variant) []*rules.Variant {
	among := make(map[string]bool, len(others))
	for _, text := range textsOf(others) {
		among[text] = true
	}
	return slices.DeleteFunc(slices.Clone(rates), func(v *rules.Variant) bool {
		return among[textOf(v)]
	})
}

// write writes a line for some rates to the log, and an event for each to the audit.
func (t *temporaryLog) write(message, action string, rates []*rules.Variant) {
	if len(rates) == 0 {
		return
	}
	t.log.Info(message, "count", len(rates), "rates", textsOf(rates[:min(mostListed, len(rates))]))
	if !t.trail.On() {
		return
	}
	for _, v := range rates {
		t.trail.Note(access.With(context.Background(), access.LimitsFile(v.At.File)), audit.Event{
			Action: action, Outcome: audit.Done, Door: audit.Files,
			Changes: []audit.Change{{Limit: v.Limit.Name, Rate: v.RateText() + " " + v.Why}}})
	}
}

// end removes and logs the rates that are over.
func (t *temporaryLog) end() {
	now := time.Now()
	var over []*rules.Variant
	t.rates = slices.DeleteFunc(t.rates, func(v *rules.Variant) bool {
		if now.Before(v.Until) {
			return false
		}
		over = append(over, v)
		return true
	})
	t.write("rates have ended", "raise_ends", over)
}

// wait sets the timer for the next end.
func (t *temporaryLog) wait() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	if len(t.rates) == 0 || t.closed {
		return
	}
	next := slices.MinFunc(t.rates, func(a, b *rules.Variant) int {
		return a.Until.Compare(b.Until)
	})
	t.timer = time.AfterFunc(time.Until(next.Until), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.closed {
			t.end()
			t.wait()
		}
	})
}

// close ends the timer.
func (t *temporaryLog) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.wait()
}
