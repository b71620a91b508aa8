package conformance

import (
	"fmt"
	"io"
	"time"
)

// fullRun is what a full run may take on a slow server.
const fullRun = 30 * time.Minute

// tooSoon returns what is wrong with a deadline of the test binary for a full run, or "".
func tooSoon(deadline, now time.Time) string {
	left := deadline.Sub(now)
	if left >= fullRun {
		return ""
	}
	return fmt.Sprintf("a full run takes up to %v, and go test ends this test in %v: run it with "+
		"-timeout=2h",
		fullRun, left.Round(time.Second))
}

// progress prints how far a full run is. go test shows it at once with -v, or when no package is
// named.
type progress struct {
	to    io.Writer
	test  string // its name
	rules int
	begun int
	begin time.Time
	every time.Duration // between two lines about one rule
}

// rule prints at intervals that a rule is running, until done is called with how it ended.
func (p *progress) rule(name string) (done func(how string)) {
	if p == nil {
		return func(string) {}
	}
	p.begun++
	begin, ended, stopped := time.Now(), make(chan struct{}), make(chan struct{})
	say := func(what string) {
		fmt.Fprintf(p.to, "conformance: %s: %v: rule %d of %d, %s, %s after %v\n",
			p.test, time.Since(p.begin).Round(time.Second), p.begun, p.rules, name, what,
			time.Since(begin).Round(time.Second))
	}
	go func() {
		defer close(stopped)
		tick := time.NewTicker(p.every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				say("is running")
			case <-ended:
				return
			}
		}
	}()
	return func(how string) {
		close(ended)
		<-stopped
		say(how)
	}
}
