package algorithm_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// TestMonthly: a month admits up to Max until it ends.
func TestMonthly(t *testing.T) {
	a := algorithm.Monthly("m", 3)
	if l := a.Limit(); l != (driver.Limit{Name: "m", Max: 3, Window: 31 * days}) {
		t.Errorf("%+v", l)
	}
	s := &stepper{}
	for _, tt := range []struct {
		at         string
		n          int64
		allowed    bool
		remaining  int64
		retryAfter time.Duration
		resetAfter time.Duration
	}{
		{"2027-02-01T00:00:00Z", 2, true, 1, 0, 28 * days},
		{"2027-02-28T23:59:59Z", 2, false, 1, time.Second, time.Second},
		{"2027-02-28T23:59:59Z", 1, true, 0, 0, time.Second},
		{"2027-03-01T00:00:00Z", 3, true, 0, 0, 31 * days},
		{"2027-03-31T00:00:00Z", 1, false, 0, days, days},
		{"2027-02-28T12:00:00Z", 1, false, 0, 31*days + days/2, 31*days + days/2}, // a step back
		{"2027-01-10T00:00:00Z", 1, false, 0, 22 * days, 22 * days},               // a larger one
		{"2027-02-01T00:00:00Z", 1, true, 2, 0, 28 * days},
	} {
		at, err := time.Parse(time.RFC3339, tt.at)
		if err != nil {
			t.Fatal(err)
		}
		s.now = at.UnixMicro()
		res := s.take(t, a, tt.n)
		if res.Allowed != tt.allowed || res.Remaining != tt.remaining ||
			res.RetryAfter != tt.retryAfter || res.ResetAfter != tt.resetAfter {
			t.Errorf("%s, %d units: %+v, want %+v", tt.at, tt.n, res, tt)
		}
	}
}

// monthModel counts in the calendar months of time zones.
type monthModel struct {
	begin, end, written time.Time
	used                int64
}

// take decides a demand of n units, in the zone of at.
func (m *monthModel) take(limit driver.Limit, at time.Time, n int64, force bool) driver.Result {
	middle := m.begin.Add(m.end.Sub(m.begin) / 2)
	_, latest := monthOf(middle.In(at.Location()))
	latest = earlier(latest, m.begin.Add(31*days))
	ends := earlier(m.end, latest)
	ahead := m.written.Sub(at) > 31*days
	if ahead || !at.Before(ends) {
		m.begin, m.end = monthOf(at)
		m.written, ends, latest = at, m.end, m.end
		if !ahead {
			m.used = 0
		}
	}
	res := driver.Result{Allowed: force || m.used+n <= limit.Max, Limit: limit}
	if res.Allowed {
		m.used += n
		m.end, ends, res.Units = latest, latest, n
		if at.After(m.written) {
			m.written = at
		}
	} else {
		res.RetryAfter = ends.Sub(at)
	}
	res.Remaining = max(0, limit.Max-m.used)
	if m.used > 0 {
		res.ResetAfter = ends.Sub(at)
	}
	return res
}

// monthOf returns the first instant of the month of at in its zone, and of the next month.
func monthOf(at time.Time) (begin, end time.Time) {
	begin = time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, at.Location())
	return begin, begin.AddDate(0, 1, 0)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// TestMonthlyIsModel: histories in which Max, the offset and the clock change are those of the
// model.
func TestMonthlyIsModel(t *testing.T) {
	refusals := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 9))
		s, m := &stepper{}, &monthModel{}
		now := time.Date(2020+r.IntN(85), 1, 1, 0, 0, 0, 0, time.UTC)
		most, offset := 1+r.Int64N(9), time.Duration(0)
		for range 200 {
			switch r.IntN(20) {
			case 0:
				most = 1 + r.Int64N(9)
			case 1:
				offset = time.Duration(r.IntN(2*24*3600+1)-24*3600) * time.Second
			case 2:
				offset = time.Duration(r.IntN(2*31*24*3600-1)-31*24*3600+1) * time.Second
			}
			zone := time.FixedZone("", int(-offset.Seconds()))
			switch r.IntN(12) {
			case 0:
				now = now.Add(-time.Duration(r.Int64N(int64(40 * days))))
			case 1, 2: // to the end of a month, or just before it
				_, now = monthOf(now.In(zone))
				now = now.Add(-time.Duration(r.IntN(2)) * time.Microsecond)
			default:
				now = now.Add(time.Duration(r.Int64N(int64(3 * days))))
			}
			now = now.Truncate(time.Microsecond)
			s.now = now.UnixMicro()
			a := algorithm.Monthly("m", most).WithOffset(offset)
			d := driver.Demand{N: 1 + r.Int64N(most)}
			if r.IntN(8) == 0 {
				d.Op, d.N = driver.OpForce, 1+r.Int64N(12)
			}
			got := s.step(t, a, d)
			want := m.take(a.Limit(), now.In(zone), d.N, d.Op == driver.OpForce)
			want.Units = got.Units
			if got != want {
				t.Fatalf("history %d at %v with an offset of %v, %v of %d: got %+v, want %+v",
					seed, now, offset, d.Op, d.N, got, want)
			}
			if got.Allowed {
				continue
			}
			refusals++
			s.wantExactRetry(t, a, d.N, got)
		}
	}
	if refusals < 5000 {
		t.Errorf("only %d refusals", refusals)
	}
}

// TestMonthlySuite: calendar months beside logs pass the suite.
func TestMonthlySuite(t *testing.T) {
	runSuite(t, []func(driver.Limit) driver.Algorithm{months}, map[string]string{
		"window/rolling":          "two months let two Max into one rolling Window",
		"clock/back-up-to-window": "it looks into a rolling Window",
		"algorithm/values":        "the Window of months is always 31 days",
	})
}
