package daemon

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// TestTemporaryLog: the log has each rate that ends once when it begins, and once when it ends.
func TestTemporaryLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b apitest.Log
		log := slog.New(slog.NewTextHandler(&b, nil))
		began := time.Now()
		set := func(hours ...int) *rules.Set {
			l := &rules.Limit{Name: "n", Rate: rules.Rate{Units: 1, Window: time.Minute}}
			for i, h := range hours {
				l.Except = append(l.Except, rules.Exception{Rate: l.Rate,
					When:  []rules.Condition{{Entry: "a", Pattern: string(rune('a' + i))}},
					Until: began.Add(time.Duration(h) * time.Hour).UTC()})
			}
			s, err := rules.Compile([]*rules.Limit{l}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		var logged temporaryLog
		use := func(hours ...int) func() { return func() { logged.use(log, set(hours...)) } }
		pass := func(d time.Duration) func() {
			return func() {
				time.Sleep(d)
				synctest.Wait()
			}
		}
		for i, step := range []struct {
			do   func()
			want []string // each a part of a line
		}{
			{use(), nil},
			{use(1, 2, 0), []string{"rates begin that end by themselves"}},
			{use(1, 2, 0), nil},
			{pass(time.Hour - 1), nil},
			{pass(1), []string{`rates have ended" count=1 rates="[n 1/1m0s except a=a until `}},
			{use(1, 2, 5), []string{`end by themselves" count=1 rates="[n 1/1m0s except a=c`}},
			{use(1, 9, 5), []string{"count=1 rates=\"[n 1/1m0s except a=b until 2000-01-01T09",
				`before their time" count=1 rates="[n 1/1m0s except a=b until 2000-01-01T02`}},
			{pass(24 * time.Hour), []string{"except a=c until", "except a=b until"}},
			{use(48), []string{"begin"}},
			{logged.close, nil},
			{pass(99 * time.Hour), nil},
		} {
			before := len(b.String())
			step.do()
			lines := strings.Split(b.String()[before:], "\n")
			lines = lines[:len(lines)-1]
			if len(lines) != len(step.want) {
				t.Fatalf("step %d: %q, want %q", i, lines, step.want)
			}
			for n, want := range step.want {
				if !strings.Contains(lines[n], want) {
					t.Errorf("step %d: %s, want %s", i, lines[n], want)
				}
			}
		}
	})
}
