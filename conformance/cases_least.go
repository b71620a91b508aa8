package conformance

import (
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

const (
	saysLeast = "Least, of an OpTake or OpHold: if it is not 0, the demand takes as much as is " +
		"free (the Remaining of an OpPeek), between Least and N, which may exceed Max."
	saysLeastAll = "In a TakeAll it takes what is free under all demands with a Least, whose N " +
		"and Least have to be equal."
)

var leastRules = []rule{
	{name: "least/part", says: saysLeast, check: checkPart},
	{name: "least/retry-after", says: saysLeast + " " + saysRetry, check: checkPartRetryAfter},
	{name: "least/repeated", says: saysLeast + " " + saysRepeated, check: checkPartRepeated},
	{name: "least/hold", says: saysLeast + " " + saysNeverReduces, check: held(checkHoldPart)},
	{name: "takeall/least", says: saysLeastAll + " " + saysAtomic, check: checkPartTogether},
	{name: "concurrency/least", says: saysLeast + " " + saysShared, check: checkCountParts},
}

// partly returns d with a Least.
func partly(d driver.Demand, least int64) driver.Demand {
	d.Least = least
	return d
}

// wantPart checks how many units d gets; it is refused if that is 0.
func (e *env) wantPart(d driver.Demand, want int64) driver.Result {
	res := e.do(d)
	if res.Units != want || res.Allowed != (want > 0) {
		e.fatalf("%v of %d units, at least %d, returned Allowed %t and %d Units, want %d", d.Op,
			d.N, d.Least, res.Allowed, res.Units, want)
	}
	return res
}

func checkPart(e *env) {
	key, a := e.key(), e.alg(10)
	e.admit(take(key, a, 7))
	e.wantPart(partly(take(key, a, 9), 4), 0)
	e.wantPart(partly(take(key, a, 9), 3), 3)
	for range e.rounds(10) {
		most := 1 + e.rand.Int64N(40)
		key, a := e.key(), e.alg(most)
		for used := int64(0); used < most; {
			least := 1 + e.rand.Int64N(most)
			n := least + e.rand.Int64N(2*most)
			want := min(n, most-used)
			if want < least {
				want = 0
			}
			res := e.wantPart(partly(take(key, a, n), least), want)
			if used += want; res.Remaining != most-used {
				e.fatalf("Remaining is %d after a part of %d, want %d", res.Remaining, want,
					most-used)
			}
			e.clock.add(time.Microsecond)
		}
		e.wantPart(partly(take(key, a, driver.MaxUnits), 1), 0)
		e.clock.add(window)
		e.wantPart(partly(take(key, a, driver.MaxUnits), most), most)
	}
}

func checkPartRetryAfter(e *env) {
	key, a := e.key(), e.alg(10)
	for _, n := range []int64{2, 4, 4} {
		e.admit(take(key, a, n))
		e.clock.add(time.Second)
	}
	d := partly(take(key, a, 8), 3)
	retry := e.refuse(d).RetryAfter
	if want := e.refuse(take(key, a, 3)).RetryAfter; retry != want {
		e.fatalf("RetryAfter of 8 units, at least 3, is %v, and of 3 units %v", retry, want)
	}
	now := e.clock.now()
	e.clock.after(now, retry-time.Microsecond)
	e.refuse(d)
	e.clock.after(now, retry)
	e.wantPart(d, 6)
}

// checkPartRepeated: a refusal that is repeated concerns as many units as it did, or more.
func checkPartRepeated(e *env) {
	key, a := e.key(), e.alg(10)
	e.admit(take(key, a, 7))
	for range 5 {
		e.refuse(take(key, a, 5))
		e.refuse(partly(take(key, a, 9), 4))
		e.settle()
	}
	e.wantPart(partly(take(key, a, 5), 1), 3)
	for range 5 {
		e.refuse(partly(take(key, a, 9), 1))
		e.settle()
	}
	e.clock.add(window)
	e.wantPart(partly(take(key, a, 9), 1), 9)
}

func checkHoldPart(h *heldKey) {
	d := partly(hold(h.key, h.holder, 1, 12), 2)
	h.hold(2, 4)
	h.want(d, true, 6)
	h.left(0)
	h.want(d, true, 6)
	h.want(partly(hold(h.key, h.holder, 3, 5), 1), false, 0)
	h.settle(1, 3, 3)
	free := int64(3)
	if h.holder.InFlight() {
		free = 6
	}
	h.want(partly(hold(h.key, h.holder, 3, driver.MaxUnits), free), true, free)
	h.clock.add(longest(h.timeout))
	h.renew(3, free)
}

func checkPartTogether(e *env) {
	key := e.key()
	wide, narrow, other := e.algOf("l1", 10), e.algOf("l2", 6), e.algOf("l3", 2)
	ds := []driver.Demand{
		partly(take(key, wide, 8), 2), take(key, other, 1), partly(take(key, narrow, 8), 2),
	}
	wantAll := func(after string, units, wideLeft, otherLeft, narrowLeft int64) {
		out := e.all(ds...)
		if allowed(out) != (units > 0) || out[0].Units != units || out[2].Units != units {
			e.fatalf("%s: parts of 8 units, at least 2, of 10 and of 6: %+v, want %d", after, out,
				units)
		}
		e.wantLeft(key, wide, wideLeft, after)
		e.wantLeft(key, other, otherLeft, after)
		e.wantLeft(key, narrow, narrowLeft, after)
	}
	wantAll("the first call", 6, 4, 1, 0)
	wantAll("a call that the second limit refuses", 0, 4, 1, 0)
	e.admit(reset(key, narrow))
	wantAll("a reset of the second limit", 4, 0, 0, 2)
	e.admit(reset(key, wide))
	wantAll("a call that the limit without a part refuses", 0, 10, 0, 2)
}

// checkCountParts has many callers take parts, until nothing is left.
func checkCountParts(e *env) {
	const goroutines = 32
	most := int64(goroutines * e.scale(20))
	key, a := e.key(), e.alg(most)
	var taken atomic.Int64
	e.together(goroutines, func(g int) error {
		for {
			res, err := e.store.Take(e.ctx, partly(take(key, a, int64(7+g%5)), 1))
			if err != nil || !res.Allowed {
				return err
			}
			taken.Add(res.Units)
		}
	})
	if n := taken.Load(); n != most {
		e.fatalf("parts of %d units were taken, want %d", n, most)
	}
	e.wantLeft(key, a, 0, "parts until none was left")
}
