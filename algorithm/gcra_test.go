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

// step decides a take, a peek or a force, without bounds of its numbers.
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
	res := driver.Result{Allowed: true, Limit: l}
	fits := later.Cmp(rat(now+window)) <= 0
	switch {
	case d.Op == driver.OpForce, d.Op == driver.OpTake && fits:
		full = later
		m.full, m.written, m.most, wrote = later, max(now, m.written), l.Max, true
		res.Units = d.N
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
		limit := newLimit()
		for range 40 {
			if round%2 == 0 && random.IntN(8) == 0 {
				limit = newLimit()
			}
			window := limit.Window.Microseconds()
			s.now = min(max(1e15-1e14, s.now+random.Int64N(window)-window/5), 4e15)
			d := driver.Demand{Op: driver.Op(random.IntN(3)), N: 1 + random.Int64N(limit.Max),
				At: s.now}
			if random.IntN(3) == 0 {
				d.N = 1 + random.Int64N(min(limit.Max, 20))
			}
			got := s.step(t, algorithm.TokenBucket(limit), d)
			want := m.step(limit, d, s.now)
			if got != want {
				t.Fatalf("round %d: %v of %d at %d, limit %v: %+v, want %+v",
					round, d.Op, d.N, s.now, limit, got, want)
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
