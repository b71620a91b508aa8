package conformance

import (
	"time"

	"github.com/truewindow/ratelimit/driver"
)

const saysRepeated = "A refusal from SourceCache was made earlier by the store, for the same " +
	"demand or for one of fewer units, and still holds. " +
	"Its RetryAfter and ResetAfter are never too long but may be too short. Its Remaining is " +
	"that of the earlier refusal: never too high, except that calls which are still in flight " +
	"may not be counted."

var resultRules = []rule{
	{name: "result/retry-after", says: saysRetry, check: checkRetryAfter},
	{name: "result/reset-after",
		says: "ResetAfter is how long it takes, with nothing else admitted, until all units are " +
			"free. Zero means that all are free now.",
		check: checkResetAfter},
	{name: "result/remaining",
		says: "Remaining is the number of units that are free now, after the decision; never " +
			"negative. " +
			"Limit is the limit that decided.", check: checkRemaining},
	{name: "result/source", says: "Source says where the decision was made.", check: checkSource},
	{name: "result/repeated", says: saysRepeated, check: func(e *env) { checkRepeated(e, only) }},
	{name: "result/repeated-two-clients", says: saysRepeated, needs: second,
		check: func(e *env) { checkRepeated(e, alternate) }},
	{name: "window/rolling",
		says:  "In every window (t−W, t], wherever it begins, at most Max units are admitted.",
		check: checkRolling},
}

func checkRetryAfter(e *env) {
	for range e.rounds(20) {
		most := 1 + e.rand.Int64N(6)
		key, a := e.key(), e.alg(most)
		for {
			n := 1 + e.rand.Int64N(most)
			res := e.do(take(key, a, n))
			if res.Allowed {
				if res.RetryAfter != 0 {
					e.fatalf("RetryAfter of an admission is %v", res.RetryAfter)
				}
				e.clock.add(time.Duration(e.rand.Int64N(int64(window / 10))))
				continue
			}
			now := e.clock.now()
			e.clock.after(now, res.RetryAfter-time.Microsecond)
			if early := e.refuse(take(key, a, n)); early.RetryAfter != time.Microsecond {
				e.fatalf("RetryAfter is %v one microsecond before the end of a RetryAfter of %v",
					early.RetryAfter, res.RetryAfter)
			}
			e.clock.after(now, res.RetryAfter)
			e.admit(take(key, a, n))
			break
		}
	}
}

func checkResetAfter(e *env) {
	key, a := e.key(), e.alg(5)
	if res := e.do(peek(key, a, 1)); res.ResetAfter != 0 {
		e.fatalf("ResetAfter of a key without history is %v", res.ResetAfter)
	}
	for range 5 {
		res := e.admit(take(key, a, 1))
		if res.ResetAfter <= 0 {
			e.fatalf("ResetAfter of an admission is %v", res.ResetAfter)
		}
		e.clock.add(time.Second)
	}
	res := e.refuse(take(key, a, 1))
	now := e.clock.now()
	e.clock.after(now, res.ResetAfter-time.Microsecond)
	if early := e.do(peek(key, a, 1)); early.Remaining == 5 ||
		early.ResetAfter != time.Microsecond {
		e.fatalf("one microsecond before ResetAfter has passed a peek returned %+v", early)
	}
	e.clock.after(now, res.ResetAfter)
	if full := e.do(peek(key, a, 5)); !full.Allowed || full.Remaining != 5 || full.ResetAfter != 0 {
		e.fatalf("after ResetAfter a peek for all returned %+v", full)
	}
}

func checkRemaining(e *env) {
	key, ten, three := e.key(), e.algOf("l", 10), e.algOf("l", 3)
	want := func(got driver.Result, a driver.Algorithm, remaining int64) {
		if got.Limit != a.Limit() || got.Remaining != remaining {
			e.fatalf("Limit and Remaining are %v and %d, want %v and %d",
				got.Limit, got.Remaining, a.Limit(), remaining)
		}
	}
	want(e.admit(take(key, ten, 4)), ten, 6)
	want(e.admit(peek(key, ten, 6)), ten, 6)
	want(e.refuse(take(key, ten, 7)), ten, 6)
	want(e.refuse(take(key, three, 1)), three, 0)
	want(e.admit(force(key, three, 1)), three, 0)
	want(e.admit(take(key, ten, 5)), ten, 0)
}

func checkSource(e *env) {
	key, a := e.key(), e.alg(3)
	for _, d := range []driver.Demand{take(key, a, 3), peek(key, a, 1), force(key, a, 1)} {
		if res := e.do(d); res.Source != driver.SourceStore {
			e.fatalf("Source of a %v is %v, want store", d.Op, res.Source)
		}
	}
}

// checkRolling takes all it can around the edges of windows, under every algorithm, and sums what
// each window admitted.
func checkRolling(e *env) {
	type admission struct{ now, n int64 }
	const most = 7
	for i, newAlgorithm := range e.algorithms {
		key, a := e.key(), newAlgorithm(driver.Limit{Max: most, Window: window})
		var admitted []admission
		for range e.rounds(400) {
			now, n := e.clock.now(), 1+e.rand.Int64N(3)
			res := e.do(take(key, a, n))
			sum := int64(0)
			for _, before := range admitted {
				if before.now > now-window.Microseconds() {
					sum += before.n
				}
			}
			if res.Allowed {
				if admitted = append(admitted, admission{now, n}); sum+n > most {
					e.fatalf("%d units of %v were admitted in one window by %+v",
						sum+n, a.Limit(), a)
				}
			} else if i == 0 && sum+n <= most {
				e.fatalf("%d of %v were refused with only %d in the window", n, a.Limit(), sum)
			}
			switch e.rand.IntN(4) {
			case 0:
				e.clock.add(time.Duration(e.rand.Int64N(int64(window / most))))
			case 1:
				e.clock.add(time.Microsecond)
			case 2:
				e.clock.add(res.RetryAfter)
			default:
				e.clock.add(max(0, res.RetryAfter-time.Microsecond))
			}
		}
	}
}

// checkRepeated repeats a demand when the limit is used up, and after each call that may end the
// refusal.
func checkRepeated(e *env, client func(*env, int) driver.Store) {
	const most = 5
	log, larger := e.alg(most), e.alg(most+1)
	events := []func(r *run, key string, n int64){
		func(r *run, key string, _ int64) { r.asks(reset(key, log)) },
		func(r *run, key string, _ int64) { r.asks(force(key, log, 1)) },
		func(r *run, key string, n int64) { r.asks(take(key, larger, n)) },
		func(r *run, key string, n int64) { r.asks(take(key, log, max(1, n-1))) },
		func(r *run, key string, n int64) { r.asks(peek(key, log, n)) },
		func(r *run, key string, _ int64) { // an admission makes Remaining of a refusal too high
			r.asks(reset(key, log))
			for _, n := range []int64{most - 1, 2, 1, 2} {
				r.asks(take(key, log, n))
			}
		},
		func(r *run, _ string, _ int64) { r.setClock(r.retry) },
		func(r *run, _ string, _ int64) { r.setClock(r.retry - 1) },
		func(r *run, _ string, _ int64) { r.setClock(r.model.now - 1) },
		func(r *run, _ string, _ int64) { r.setClock(r.model.now - 2*window.Microseconds()) },
	}
	for round := range e.rounds(3 * len(events)) {
		r := newRun(e, differential{store: client}, e.seed+uint64(round))
		key := e.key()
		for i := 0; i < most; i += 2 {
			r.setClock(r.model.now + 1 + r.rand.Int64N(window.Microseconds()/20))
			r.asks(take(key, log, min(2, int64(most-i))))
		}
		for range 4 {
			n := 1 + r.rand.Int64N(3)
			for range 4 {
				r.asks(take(key, log, n))
				r.setClock(r.model.now + r.rand.Int64N(3))
			}
			events[round%len(events)](r, key, n)
			for range 3 {
				r.asks(take(key, log, n))
			}
		}
		r.clean()
	}
}

// asks makes ds on the store and on the model.
func (r *run) asks(ds ...driver.Demand) {
	r.asked++
	r.ask(r.asked, ds)
}
