package algorithm_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// bucketModel has the units that are missing as a rational number, without bounds.
type bucketModel struct {
	missing *big.Rat     // when it was written
	limit   driver.Limit // that wrote it
	written int64
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// ceil returns x, rounded up.
func ceil(x *big.Rat) *big.Int {
	up := new(big.Int).Sub(new(big.Int).Add(x.Num(), x.Denom()), big.NewInt(1))
	return up.Div(up, x.Denom())
}

// refill returns the units that come back under l in us microseconds.
func refill(l driver.Limit, us int64) *big.Rat {
	return new(big.Rat).Mul(rat(us), big.NewRat(l.Max, l.Window.Microseconds()))
}

// refilled returns how long it takes until x units have come back under l, in whole microseconds.
func refilled(l driver.Limit, x *big.Rat) time.Duration {
	us := new(big.Rat).Mul(x, big.NewRat(l.Window.Microseconds(), l.Max))
	return time.Duration(ceil(us).Int64()) * time.Microsecond
}

// step decides a take, a peek or a force with a debt in µs.
func (m *bucketModel) step(l driver.Limit, debt int64, d driver.Demand, now int64) driver.Result {
	window, wrote := l.Window.Microseconds(), false
	s := bucketModel{new(big.Rat).Set(m.missing), l, max(now, m.written)}
	theirs := refill(m.limit, debt)
	if own := refill(l, debt); m.limit != l && own.Cmp(theirs) > 0 {
		theirs = new(big.Rat).SetInt(new(big.Int).Div(own.Num(), own.Denom())) // whole units
		if longest := refill(m.limit, 1<<50); theirs.Cmp(longest) > 0 {
			theirs = longest
		}
	}
	if s.missing.Cmp(theirs) > 0 {
		s.missing.Set(theirs)
	}
	if now > m.written {
		s.missing.Sub(s.missing, refill(m.limit, now-m.written))
	}
	if s.missing.Sign() < 0 {
		s.missing = rat(0)
	}
	if m.limit != l && s.missing.Sign() > 0 { // rounded up to parts of the new Window
		parts := ceil(new(big.Rat).Mul(s.missing, rat(window)))
		parted := new(big.Rat).SetFrac(parts, big.NewInt(window))
		switch most := refill(l, debt); {
		case parted.Cmp(most) <= 0:
			s.missing, wrote = parted, true
		case debt == 1<<50:
			s.missing, wrote = most, true
		default:
			s.limit = m.limit // which has more than the debt
		}
	}
	if s.written-now > s.limit.Window.Microseconds() {
		s.written, wrote = now, true
	}
	back := refill(s.limit, s.written-now)
	missing := new(big.Rat).Add(s.missing, back)
	after := new(big.Rat).Add(missing, rat(d.N))
	over := new(big.Rat).Sub(after, rat(l.Max))
	res := driver.Result{Allowed: true, Limit: l}
	switch {
	case d.Op == driver.OpForce, d.Op == driver.OpTake && over.Sign() <= 0:
		wrote, res.Units = true, d.N
		most := refill(l, debt)
		if s.limit != l {
			most = theirs
		}
		if s.missing.Add(s.missing, rat(d.N)); s.missing.Cmp(most) > 0 {
			s.missing = most
		}
		missing.Add(s.missing, back)
	case over.Sign() > 0:
		res.Allowed, res.RetryAfter = false, refilled(s.limit, over)
	}
	if free := new(big.Rat).Sub(rat(l.Max), missing); free.Sign() > 0 {
		res.Remaining = new(big.Int).Div(free.Num(), free.Denom()).Int64()
	}
	res.ResetAfter = refilled(s.limit, missing)
	if wrote && res.ResetAfter == 0 {
		*m = bucketModel{rat(0), l, 0}
	} else if wrote {
		*m = bucketModel{s.missing, s.limit, s.written}
	}
	return res
}

// gcraModel is the Generic Cell Rate Algorithm by virtual scheduling, under a limit that does not
// change.
type gcraModel struct {
	limit   driver.Limit
	debt    int64    // µs
	full    *big.Int // when the bucket is full, in 1/Max µs
	written int64
}

// parts returns a time in 1/Max µs.
func (m *gcraModel) parts(us int64) *big.Int {
	return new(big.Int).Mul(big.NewInt(us), big.NewInt(m.limit.Max))
}

// after returns the time from now to t, which is in 1/Max µs, in whole microseconds.
func (m *gcraModel) after(t *big.Int, now int64) time.Duration {
	us := new(big.Int).Sub(t, m.parts(now))
	us.Add(us, big.NewInt(m.limit.Max-1)).Div(us, big.NewInt(m.limit.Max))
	return time.Duration(us.Int64()) * time.Microsecond
}

// step decides a take, a peek or a force.
func (m *gcraModel) step(d driver.Demand, now int64) driver.Result {
	window, wrote := m.limit.Window.Microseconds(), false
	if m.written-now > window { // the clock was ahead
		m.full.Sub(m.full, m.parts(m.written-now))
		m.written, wrote = now, true
	}
	full := new(big.Int).Set(m.full)
	if full.Cmp(m.parts(now)) < 0 {
		full = m.parts(now)
	}
	later := new(big.Int).Mul(big.NewInt(d.N), big.NewInt(window))
	later.Add(later, full)
	res := driver.Result{Allowed: true, Limit: m.limit}
	switch fits := later.Cmp(m.parts(now+window)) <= 0; {
	case d.Op == driver.OpForce, d.Op == driver.OpTake && fits:
		if most := m.parts(max(now, m.written) + m.debt); later.Cmp(most) > 0 {
			later = most
		}
		full, m.full, m.written, wrote = later, later, max(now, m.written), true
		res.Units = d.N
	case !fits:
		res.Allowed, res.RetryAfter = false, m.after(later, now)-m.limit.Window
	}
	if left := m.parts(now + window); left.Cmp(full) > 0 {
		left.Sub(left, full)
		res.Remaining = left.Div(left, big.NewInt(window)).Int64()
	}
	res.ResetAfter = m.after(full, now)
	if wrote && res.ResetAfter == 0 { // a full bucket is forgotten
		m.full, m.written = new(big.Int), 0
	}
	return res
}

// randomBucketLimit returns a limit of any size.
func randomBucketLimit(random *rand.Rand) driver.Limit {
	return driver.Limit{Name: "b", Max: 1 + random.Int64N(1<<random.IntN(41)),
		Window: time.Millisecond + time.Duration(random.Int64N(
			int64(driver.MaxWindow-time.Millisecond)>>random.IntN(34))).Truncate(time.Microsecond)}
}

// randomBucketStep returns a demand and its time. The clock mostly goes on by a part of a Window,
// and steps back by up to two.
func randomBucketStep(random *rand.Rand, l driver.Limit, now int64) (driver.Demand, int64) {
	window := l.Window.Microseconds()
	switch random.IntN(10) {
	case 0:
		now -= random.Int64N(2 * window)
	case 1, 2:
	case 3:
		now += random.Int64N(2 * window)
	default:
		now += random.Int64N(window/8 + 1)
	}
	d := driver.Demand{Op: driver.OpTake, N: 1 + random.Int64N(l.Max)}
	if random.IntN(2) == 0 {
		d.N = 1 + random.Int64N(min(l.Max, 20))
	}
	switch random.IntN(100) {
	case 0:
		d.Op, d.N = driver.OpForce, 1+random.Int64N(1<<random.IntN(41))
	case 1, 2, 3, 4, 5, 6:
		d.Op = driver.OpForce
	case 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20:
		d.Op = driver.OpPeek
	}
	return d, min(max(1, now), 4e15)
}

// randomDebt returns the default, the least, or any debt.
func randomDebt(random *rand.Rand, l driver.Limit) time.Duration {
	const longest = 1 << 50 * time.Microsecond
	switch random.IntN(4) {
	case 0:
		return longest
	case 1:
		return l.Window
	default:
		more := random.Int64N(int64(longest-l.Window) >> random.IntN(35))
		return l.Window + time.Duration(more).Truncate(time.Microsecond)
	}
}

// TestTokenBucketIsGCRA: under one limit the bucket decides as the Generic Cell Rate Algorithm, for
// limits of all sizes, debts and a clock that steps.
func TestTokenBucketIsGCRA(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	admitted, refused, debts := 0, 0, 0
	rounds := depth.Of(500, 5000)
	for round := range rounds {
		limit := randomBucketLimit(random)
		debt := randomDebt(random, limit)
		a := algorithm.GCRA(limit).WithDebt(debt)
		m := &gcraModel{limit: limit, debt: debt.Microseconds(), full: new(big.Int)}
		s := &stepper{now: 1e15}
		for range 200 {
			var d driver.Demand
			d, s.now = randomBucketStep(random, limit, s.now)
			got, want := s.step(t, a, d), m.step(d, s.now)
			if got != want {
				t.Fatalf("round %d: %v of %d at %d under %v: %+v, want %+v",
					round, d.Op, d.N, s.now, a, got, want)
			}
			switch {
			case got.ResetAfter > debt+limit.Window:
				t.Fatalf("round %d: %+v with debt %v", round, got, debt)
			case got.ResetAfter == debt:
				debts++
			case got.Allowed:
				admitted++
			default:
				refused++
			}
		}
	}
	if min(admitted, refused) < 30*rounds || debts < rounds/3 {
		t.Errorf("%d admitted, %d refused, %d with the longest debt", admitted, refused, debts)
	}
}

// TestTokenBucketIsModel: the bucket decides as the model, under limits and debts that change.
func TestTokenBucketIsModel(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 7))
	changed, refused, reduced, stayed := 0, 0, 0, 0
	rounds := depth.Of(500, 5000)
	for round := range rounds {
		limit := randomBucketLimit(random)
		debt := randomDebt(random, limit)
		m := &bucketModel{rat(0), limit, 0}
		s := &stepper{now: 1e15}
		for range 40 {
			switch random.IntN(8) {
			case 0:
				limit = randomBucketLimit(random)
			case 1: // a little
				limit.Max = min(driver.MaxUnits, limit.Max+random.Int64N(10))
				limit.Window = min(driver.MaxWindow, limit.Window+time.Duration(
					random.Int64N(int64(limit.Window))).Truncate(time.Microsecond))
			}
			if debt < limit.Window || random.IntN(4) == 0 {
				debt = randomDebt(random, limit)
			}
			var d driver.Demand
			d, s.now = randomBucketStep(random, limit, s.now)
			switch {
			case m.limit != limit:
				changed++
			case m.missing.Cmp(refill(limit, debt.Microseconds())) > 0:
				reduced++
			}
			before := m.limit
			a := algorithm.GCRA(limit).WithDebt(debt)
			got, want := s.step(t, a, d), m.step(limit, debt.Microseconds(), d, s.now)
			if got != want {
				t.Fatalf("round %d: %v of %d at %d under %v: %+v, want %+v",
					round, d.Op, d.N, s.now, a, got, want)
			}
			if got.ResetAfter > debt+max(limit.Window, before.Window) {
				t.Fatalf("round %d: %+v under %v", round, got, a)
			}
			if m.limit != limit && m.missing.Sign() > 0 {
				stayed++
			}
			if !got.Allowed {
				refused++
				s.wantExactRetry(t, a, d.N, got)
			}
		}
	}
	if min(changed, refused) < 3*rounds || min(reduced, stayed) < rounds/3 {
		t.Errorf("%d steps after a change, %d after one of the debt that reduces what is missing, "+
			"%d under a limit with more than its debt, %d refusals", changed, reduced, stayed,
			refused)
	}
}
