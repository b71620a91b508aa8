package soak

import (
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// soakScript builds calls as processes record them, one after the other unless stated otherwise.
type soakScript struct {
	calls []soakCall
	at    time.Duration
}

func (s *soakScript) add(
	process int, d soakDemand, res ratelimit.Result, err soakError,
) *soakScript {
	if d.Key == "" {
		d.Key = "k"
	}
	if d.Limit.Max == 0 {
		d.Limit = ratelimit.Limit{Name: "long", Max: 2, Window: longWindow}
	}
	if d.N == 0 {
		d.N = 1
	}
	res.Limit.Max = d.Limit.Max
	s.at += time.Millisecond
	c := soakCall{Process: process, Worker: process, Call: s.at, Return: s.at + time.Microsecond,
		Demands: []soakDemand{d}, Err: err}
	if err == "" {
		c.Results = []ratelimit.Result{res}
	}
	s.calls = append(s.calls, c)
	return s
}

func (s *soakScript) take(process int, at int64) *soakScript {
	return s.add(process, soakDemand{}, tells(at, ratelimit.Result{Allowed: true}), "")
}

// takeUnder takes n units under a Max.
func (s *soakScript) takeUnder(units, n, at int64) *soakScript {
	d := soakDemand{N: n, Limit: ratelimit.Limit{Name: "long", Max: units, Window: longWindow}}
	return s.add(0, d, tells(at, ratelimit.Result{Allowed: true}), "")
}

func (s *soakScript) forced(n, at int64) *soakScript {
	return s.add(0, soakDemand{Op: driver.OpForce, N: n},
		tells(at, ratelimit.Result{Allowed: true}), "")
}

func (s *soakScript) refuse(process int, at int64, retry time.Duration) *soakScript {
	return s.add(process, soakDemand{}, tells(at, ratelimit.Result{RetryAfter: retry}), "")
}

func (s *soakScript) cached(process int, at int64, retry time.Duration) *soakScript {
	return s.add(process, soakDemand{},
		tells(at, ratelimit.Result{RetryAfter: retry, Source: ratelimit.SourceCache}), "")
}

// hold holds units as an ID. They do not time out.
func (s *soakScript) hold(process int, id uint64, n, at int64) *soakScript {
	return s.holdFor(3*longWindow, process, id, n, at)
}

// holdFor holds units as an ID, or renews with 0.
func (s *soakScript) holdFor(
	timeout time.Duration, process int, id uint64, n, at int64,
) *soakScript {
	d := soakDemand{Kind: kindBudget, Timeout: timeout, Op: driver.OpHold, N: n, ID: id}
	s.add(process, d, tells(at, ratelimit.Result{Allowed: true, Units: max(1, n)}), "")
	s.calls[len(s.calls)-1].Demands[0].N = n
	return s
}

// settle settles units of an ID.
func (s *soakScript) settle(process int, id uint64, n, at int64) *soakScript {
	d := soakDemand{Kind: kindBudget, Op: driver.OpSettle, N: n, ID: id}
	return s.add(process, d, tells(at, ratelimit.Result{Allowed: true, Units: n}), "")
}

// tells returns a result that tells a time.
func tells(at int64, res ratelimit.Result) ratelimit.Result {
	res.Remaining += at << 8
	return res
}

func (s *soakScript) lost(process int) *soakScript {
	return s.add(process, soakDemand{}, ratelimit.Result{}, soakUnknown)
}

func (s *soakScript) look(remaining int64) *soakScript {
	return s.add(soakJudge, soakDemand{Op: driver.OpPeek},
		tells(1<<20, ratelimit.Result{Allowed: remaining > 0, Remaining: remaining}), "")
}

func (s *soakScript) wait(d time.Duration) *soakScript {
	s.at += d
	return s
}

// TestSoakJudges tries each check, except that of the order, on calls that keep a promise and on
// calls that break it.
func TestSoakJudges(t *testing.T) {
	script := func() *soakScript { return &soakScript{at: time.Hour} }
	window := longWindow.Microseconds()
	limit := func(s *soakScript) string { return promiseOf(soakRound{}.judgeLimit(s.calls)) }
	stepped := func(s *soakScript) string {
		return promiseOf(soakRound{Clock: true}.judgeLimit(s.calls))
	}
	books := func(s *soakScript) string { return promiseOf(judgeBooks(s.calls)) }
	cache := func(s *soakScript) string {
		return soakRound{}.judgeCached(s.calls[len(s.calls)-1], s.calls)
	}
	for _, tt := range []struct {
		name  string
		judge func(*soakScript) string
		calls *soakScript
		wrong string // part of the expected violation
	}{
		{"a window apart", limit, script().take(0, 1).take(1, 2).take(2, 1+window), ""},
		{"three of two in a window", limit, script().take(0, 1).take(1, 2).take(2, window),
			"3 units of 2"},
		{"a larger limit in one microsecond", limit,
			script().takeUnder(5, 3, 1).takeUnder(2, 1, 2).takeUnder(5, 1, 2), "4 units of 2"},
		{"a larger limit after a smaller in one microsecond",
			limit, script().takeUnder(5, 3, 2).takeUnder(2, 2, 2), ""},
		{"a smaller limit and forced units in one microsecond",
			limit, script().forced(4, 2).takeUnder(2, 2, 2), ""},
		{"three of two in one microsecond", limit, script().takeUnder(2, 1, 2).takeUnder(2, 2, 2),
			"3 units of 2"},
		{"three of two, of which one was canceled",
			limit, script().take(0, 1).hold(1, 7, 1, 2).take(2, 4), ""},
		{"three of two, counted when it was held", limit,
			script().take(0, 1).hold(1, 7, 1, 2).take(2, 3).settle(1, 7, 1, 2*window),
			"3 units of 2"},
		{"a window apart, counted when it was held", limit,
			script().take(0, 1).hold(1, 7, 1, 2).settle(1, 7, 1, 1+window).take(2, 2+window).
				take(2, 2+window), ""},
		{"settled after its time-out", limit,
			script().holdFor(time.Second, 1, 7, 2, 1).take(0, 3_000_000).
				settle(1, 7, 2, 4_000_000), ""},
		{"settled after its time-out, but renewed", limit,
			script().take(0, 1).holdFor(time.Second, 1, 7, 2, 2).
				holdFor(time.Second, 1, 7, 0, 900_000).settle(1, 7, 2, 1_800_000), "3 units of 2"},
		{"used beyond the hold", limit,
			script().take(0, 1).hold(1, 7, 1, 2).settle(1, 7, 5, 3), ""},
		{"twice Max by a step forward",
			stepped, script().take(0, 1).take(0, 1).take(1, 5).take(2, 9), ""},
		{"more than twice Max", stepped,
			script().take(0, 1).take(0, 1).take(1, 5).take(2, 9).take(2, 11), "5 units of 2"},

		{"all that was acknowledged is recorded", books, script().take(0, 1).look(1), ""},
		{"what is unknown is recorded", books, script().take(0, 1).lost(1).look(0), ""},
		{"what is unknown is not recorded", books, script().take(0, 1).lost(1).look(1), ""},
		{"an acknowledged unit is not recorded", books, script().take(0, 1).look(2),
			"0 units are recorded or held, want 1 to 1"},
		{"one unit is recorded twice", books, script().take(0, 1).look(0),
			"2 units are recorded or held, want 1 to 1"},
		{"a hold", books, script().hold(0, 7, 2, 1).look(0), ""},
		{"a hold that has timed out", books,
			script().holdFor(time.Second/2, 0, 7, 2, 1).look(2), ""},
		{"a hold that has not timed out", books,
			script().holdFor(time.Second/2, 0, 7, 2, 1).look(0),
			"2 units are recorded or held, want 0 to 0"},
		{"a hold that was renewed", books, script().holdFor(time.Second/2, 0, 7, 2, 1).
			holdFor(time.Second, 0, 7, 0, 400_000).look(2),
			"0 units are recorded or held, want 2 to 2"},
		{"a settlement before its hold", books,
			script().settle(1, 7, 1, 2).hold(0, 7, 2, 1).look(1), ""},
		{"a settlement", books, script().hold(0, 7, 2, 1).settle(0, 7, 1, 2).look(1), ""},
		{"a settlement is lost", books, script().hold(0, 7, 2, 1).settle(0, 7, 1, 2).look(0),
			"2 units are recorded or held, want 1 to 1"},

		{"a refusal again", cache, script().refuse(0, 5, time.Minute).cached(0, 5, time.Second),
			""},
		{"a refusal to another process",
			cache, script().refuse(1, 5, time.Minute).cached(0, 5, time.Second),
			"the server gave no such refusal"},
		{"a refusal whose own answer came late",
			cache, script().lost(0).cached(0, 5, time.Second), ""},
		{"a refusal with more to wait",
			cache, script().refuse(0, 5, time.Minute).cached(0, 5, time.Minute), "RetryAfter"},
		{"an old refusal", cache, script().refuse(0, 5, time.Minute).wait(soakCacheAge).
			cached(0, 5, time.Second), "the refusal is"},
		{"freed by this process before", cache,
			script().hold(0, 7, 2, 1).settle(0, 7, 1, 4).
				refuse(0, 5, time.Minute).cached(0, 5, time.Second), ""},
		{"freed by this process since", cache, script().hold(0, 7, 2, 1).
			refuse(0, 5, time.Minute).settle(0, 7, 1, 6).
			cached(0, 5, time.Second), "process 0 has freed"},
		{"freed by another just now", cache,
			script().hold(0, 7, 2, 1).
				refuse(0, 5, time.Minute).settle(1, 7, 1, 6).cached(0, 5, time.Second), ""},
		{"freed by another long ago", cache, script().hold(0, 7, 2, 1).
			refuse(0, 5, time.Minute).settle(1, 7, 1, 6).
			wait(maxNoticeDelay).cached(0, 5, time.Second), "process 1 has freed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.judge(tt.calls)
			if got == "" && tt.wrong != "" || tt.wrong == "" && got != "" ||
				!strings.Contains(got, tt.wrong) {
				t.Errorf("got violation %q, want %q", got, tt.wrong)
			}
		})
	}
}

func promiseOf(v *violation) string {
	if v == nil {
		return ""
	}
	return v.promise
}
