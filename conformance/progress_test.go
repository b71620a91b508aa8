package conformance

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTooSoon(t *testing.T) {
	now := time.Now()
	if problem := tooSoon(now.Add(fullRun), now); problem != "" {
		t.Errorf("a deadline that is late enough: %s", problem)
	}
	problem := tooSoon(now.Add(10*time.Minute), now)
	for _, want := range []string{fullRun.String(), "10m0s", "-timeout"} {
		if !strings.Contains(problem, want) {
			t.Errorf("%q does not say %s", problem, want)
		}
	}
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		p := &progress{to: &b, test: "TestStore",
			rules: 2, begin: time.Now(), every: 30 * time.Second}
		done := p.rule("op/take")
		time.Sleep(65 * time.Second)
		done("passed")
		p.rule("op/peek")("failed")
		want := `conformance: TestStore: 30s: rule 1 of 2, op/take, is running after 30s
conformance: TestStore: 1m0s: rule 1 of 2, op/take, is running after 1m0s
conformance: TestStore: 1m5s: rule 1 of 2, op/take, passed after 1m5s
conformance: TestStore: 1m5s: rule 2 of 2, op/peek, failed after 0s
`
		if b.String() != want {
			t.Errorf("the progress is\n%s\nwant\n%s", b.String(), want)
		}
	})
	var none *progress
	none.rule("op/take")("passed")
}

// TestDeadlineOfARun checks that a rule that does not end fails before the deadline of the test
// binary.
func TestDeadlineOfARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSuite(nil)
		s.deadline = time.Now().Add(20 * time.Second)
		stuck := rule{name: "op/stuck", check: func(*env) { time.Sleep(time.Hour) }}
		_, err := s.try(t, newReference(bugs{}), stuck)
		if err == nil || !strings.Contains(err.Error(), "still running") ||
			!time.Now().Before(s.deadline) {
			t.Errorf("a case that does not end: %v", err)
		}
		time.Sleep(time.Hour) // until it has ended
	})
}
