package algorithm_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// TestTokenBucket: the bucket admits a burst, and then at its rate.
func TestTokenBucket(t *testing.T) {
	a := algorithm.TokenBucket(driver.PerSecond("b", 3))
	if a != algorithm.GCRA(driver.PerSecond("b", 3)) {
		t.Error("GCRA is another algorithm")
	}
	s := &stepper{}
	const second = int64(1_000_000)
	for _, tt := range []struct {
		at               int64 // µs
		n                int64
		allowed          bool
		remaining        int64
		retry, untilFull time.Duration
	}{
		{second, 3, true, 0, 0, time.Second},
		{second, 1, false, 0, 333_334 * time.Microsecond, time.Second},
		{second, 3, false, 0, time.Second, time.Second},
		{second + 333_333, 1, false, 0, time.Microsecond, 666_667 * time.Microsecond},
		{second + 333_334, 1, true, 0, 0, 1_000_000 * time.Microsecond},
		{2*second + 333_334, 2, true, 1, 0, 666_667 * time.Microsecond},
	} {
		s.now = tt.at
		res := s.take(t, a, tt.n)
		if res.Allowed != tt.allowed || res.Remaining != tt.remaining ||
			res.RetryAfter != tt.retry || res.ResetAfter != tt.untilFull {
			t.Errorf("at %d, %d units: %+v, want %+v", tt.at, tt.n, res, tt)
		}
	}
}

// TestTokenBucketGivesBack: a give-back returns the units that the bucket has not refilled since,
// and no more.
func TestTokenBucketGivesBack(t *testing.T) {
	a := algorithm.TokenBucket(driver.PerSecond("b", 10))
	s := &stepper{now: 1_000_000}
	first := s.take(t, a, 5)
	back := driver.Demand{Op: driver.OpGiveBack, N: 5, At: first.At}
	s.now += 300_000 // three units have been refilled
	if res := s.step(t, a, back); res.Remaining != 10 {
		t.Errorf("the two others: %+v", res)
	}
	second := s.take(t, a, 5)
	if res := s.step(t, a, back); res.Remaining != 7 {
		t.Errorf("given back twice, within the time of the first: %+v", res)
	}
	s.now = first.At
	s.step(t, a, driver.Demand{Op: driver.OpReset})
	s.take(t, a, 10)
	if res := s.step(t, a, back); res.Remaining != 0 {
		t.Errorf("after the bucket has refilled them: %+v", res)
	}
	back.At, back.N = second.At+5_000_000, 100
	if res := s.step(t, a, back); res.Remaining != 10 {
		t.Errorf("more than are missing: %+v", res)
	}
}

// bucketModel is the bucket in rational numbers: full is when it is full, in µs.
type bucketModel struct {
	full    *big.Rat
	written int64
	most    int64 // Max of the limit that has written last
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func ceil(x *big.Rat) int64 {
	q, r := new(big.Int).DivMod(x.Num(), x.Denom(), new(big.Int))
	if r.Sign() > 0 {
		return q.Int64() + 1
	}
	return q.Int64()
}

// step decides a take, a peek, a force or a give-back, without bounds of its numbers.
func (m *bucketModel) step(l driver.Limit, d driver.Demand, now int64) driver.Result {
	window, wrote := l.Window.Microseconds(), false
	if m.most != l.Max {
		m.full = rat(ceil(m.full))
	}
	if m.written-now > window {
		m.full.Sub(m.full, rat(m.written-now))
		m.written, m.most, wrote = now, l.Max, true
	}
	full := new(big.Rat).Set(m.full)
	if full.Cmp(rat(now)) < 0 {
		full = rat(now)
	}
	cost := new(big.Rat).Mul(rat(d.N), big.NewRat(window, l.Max))
	later := new(big.Rat).Add(full, cost)
	res := driver.Result{Allowed: true, Limit: l, At: now}
	fits := later.Cmp(rat(now+window)) <= 0
	switch {
	case d.Op == driver.OpForce, d.Op == driver.OpTake && fits:
		full = later
		m.full, m.written, m.most, wrote = later, max(now, m.written), l.Max, true
		res.At = new(big.Int).Div(full.Num(), full.Denom()).Int64()
	case d.Op == driver.OpGiveBack:
		missing := new(big.Rat).Sub(full, rat(now))
		if at := rat(d.At - now); at.Cmp(missing) < 0 {
			missing = at
		}
		floor := rat(new(big.Int).Div(missing.Num(), missing.Denom()).Int64())
		if floor.Sign() > 0 {
			if cost.Cmp(floor) > 0 {
				cost = floor
			}
			full = new(big.Rat).Sub(full, cost)
			m.full, m.most, wrote = full, l.Max, true
		}
	case !fits:
		res.Allowed = false
		res.RetryAfter = time.Duration(ceil(later)-window-now) * time.Microsecond
	}
	left := new(big.Rat).Sub(rat(now+window), full)
	left.Mul(left, big.NewRat(l.Max, window))
	if left.Sign() > 0 {
		res.Remaining = new(big.Int).Div(left.Num(), left.Denom()).Int64()
	}
	res.ResetAfter = time.Duration(ceil(full)-now) * time.Microsecond
	if wrote && res.ResetAfter == 0 { // a full bucket is forgotten
		m.full, m.written = rat(0), 0
	}
	return res
}

// TestTokenBucketIsModel compares Step with the model, with limits of all sizes, limits that
// change, and a clock that steps.
func TestTokenBucketIsModel(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	refusals := 0
	for round := range 3000 {
		s := &stepper{now: 1e15}
		m := &bucketModel{full: rat(0)}
		newLimit := func() driver.Limit {
			return driver.Limit{Name: "b", Max: 1 + random.Int64N(1<<random.IntN(41)),
				Window: time.Millisecond + time.Duration(random.Int64N(
					int64(driver.MaxWindow-time.Millisecond)>>random.IntN(34)))}
		}
		limit, at := newLimit(), int64(0)
		for range 40 {
			if round%2 == 0 && random.IntN(8) == 0 {
				limit = newLimit()
			}
			window := limit.Window.Microseconds()
			s.now = min(max(1e15-1e14, s.now+random.Int64N(window)-window/5), 4e15)
			d := driver.Demand{Op: driver.Op(random.IntN(4)), N: 1 + random.Int64N(limit.Max),
				At: at}
			if random.IntN(3) == 0 {
				d.N = 1 + random.Int64N(min(limit.Max, 20))
			}
			got := s.step(t, algorithm.TokenBucket(limit), d)
			want := m.step(limit, d, s.now)
			if got != want {
				t.Fatalf("round %d: %v of %d at %d, limit %v: %+v, want %+v",
					round, d.Op, d.N, s.now, limit, got, want)
			}
			if got.Allowed && d.Op == driver.OpTake {
				at = got.At
			}
			if got.Allowed {
				continue
			}
			refusals++
			s.wantExactRetry(t, algorithm.TokenBucket(limit), d.N, got)
		}
	}
	if refusals < 1000 {
		t.Errorf("only %d refusals", refusals)
	}
}
