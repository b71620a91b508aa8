package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/holdmodel"
)

// Sentences about holds.
const (
	saysHold = "OpHold makes ID hold N units for HoldTimeout. Units that are held count against " +
		"the limit, and are not recorded. It needs a [Holder]."
	saysFits = "It is admitted if N fit beside all else, or if ID holds N or more. " +
		"A demand is admitted if it fits beside what is recorded and what is held."
	saysNeverReduces = "It never reduces the units that ID holds, nor the time for which it " +
		"holds them, so it may be repeated."
	saysRenew = "With N = 0 it is always allowed: it renews what ID holds, or held until it " +
		"timed out, whether that fits or not, and does nothing for an ID without a hold."
	saysTimeOut = "HoldTimeout returns how long a hold lasts that is not renewed. Then it times " +
		"out: it does not count any more."
	saysRemembered = "For 24 hours it can still be settled and renewed. After its time-out a " +
		"hold is remembered for 24 hours, and for as long as fewer than 32,768 others have timed " +
		"out since."
	saysDeadline = "HoldTimeout, of an OpHold: how long the units are held, from 1/16 of that of " +
		"the algorithm to 16 times as long; 0 is that. A hold lasts up to an eighth longer."
	saysHoldClock = "Holds run on the store's clock. If that is set back by more than the " +
		"time-out, they last as long as they would have; if by less, up to that much longer. " +
		"If it is set forward, they time out early, and a renewal brings them back."
	saysSettle = "OpSettle ends the hold of ID and records N units, whether they fit or not; 0 " +
		"records none. It is always allowed."
	saysSettleOnce = "Without a hold of ID it records nothing, so it may be repeated."
	saysInstant    = "A log records what was held, up to N, as an OpForce does whose At is the " +
		"time of the OpHold that made the hold, enlarged it last or brought it back after its " +
		"time-out."
	saysUnits = "Units is the number of units that were taken, held, renewed or recorded: 0 if " +
		"refused, of a peek and a reset, if there was no hold to renew or settle, and for calls " +
		"in flight that are settled."
)

var holdRules = []rule{
	{name: "hold/counts", says: saysHold, check: held(checkHoldCounts)},
	{name: "hold/fits", says: saysFits, check: held(checkHoldFits)},
	{name: "hold/resize", says: saysNeverReduces, check: held(checkHoldResize)},
	{name: "hold/idempotent", says: saysNeverReduces, check: held(checkHoldIdempotent)},
	{name: "hold/ids", says: "ID of an OpHold or OpSettle names the hold.",
		check: held(checkHoldIDs)},
	{name: "hold/renew", says: saysRenew, check: held(checkRenew)},
	{name: "hold/renew-unknown", says: saysRenew, check: held(checkRenewUnknown)},
	{name: "hold/renew-late", says: saysRenew + " " + saysRemembered, check: held(checkRenewLate)},
	{name: "hold/time-out", says: saysTimeOut + " " + saysDeadline, check: held(checkTimeOut)},
	{name: "hold/not-early", says: saysTimeOut + " " + saysDeadline,
		check: held(checkTimeNotEarly)},
	{name: "hold/many-deadlines", says: saysTimeOut + " " + saysDeadline,
		check: held(checkDeadlines)},
	{name: "hold/full",
		says: "A key has at most 65,536 holds; a further one is refused until one of them times " +
			"out or is settled, and until then a renewal brings none back.", check: checkFull},
	{name: "hold/peek",
		says:  "An OpPeek with an ID returns what an OpHold would, and changes nothing.",
		check: held(checkHoldPeek)},
	{name: "hold/take-beside", says: saysFits + " " + saysUnits, check: budgets(checkTakeBeside)},
	{name: "hold/retry-after",
		says: "RetryAfter is the time until it fits if no hold is placed, renewed or settled " +
			"meanwhile.", check: held(checkHoldRetryAfter)},
	{name: "hold/changed-max", says: saysChange, check: held(checkChangedMax)},
	{name: "hold/clock-back", says: saysHoldClock, check: held(checkHoldBack)},
	{name: "hold/clock-forward", says: saysHoldClock, check: held(checkHoldForward)},
	{name: "hold/corrupt", says: saysCorrupt, check: budgets(checkHoldCorrupt)},
	{name: "hold/results", says: saysStep + " " + saysKeep, check: checkHoldResults},

	{name: "settle/less", says: saysSettle, check: budgets(checkSettleLess)},
	{name: "settle/more", says: saysSettle, check: budgets(checkSettleMore)},
	{name: "settle/zero", says: saysSettle, check: held(checkSettleZero)},
	{name: "settle/twice", says: saysSettleOnce + " " + saysUnits, check: held(checkSettleTwice)},
	{name: "settle/late", says: saysRemembered, check: budgets(checkSettleLate)},
	{name: "settle/unknown", says: saysSettleOnce, check: held(checkSettleUnknown)},
	{name: "settle/after-reset", says: saysReset, check: held(checkSettleAfterReset)},
	{name: "settle/in-flight",
		says: "InFlight reports whether the algorithm has nothing but holds, so that settling " +
			"records nothing: it limits calls in flight.", check: held(checkSettleInFlight)},
	{name: "settle/duplicates-at-once", says: saysSettleOnce + " " + saysShared,
		check: budgets(checkSettleAtOnce)},
	{name: "settle/instant", says: saysInstant, check: logs(checkSettleInstant)},
	{name: "op/force-at",
		says: "At, of an OpForce, is a time in µs since the epoch: a log adds the units to its " +
			"first record of this time or later, if there is one in the window. 0 records them " +
			"now. Other algorithms ignore it.", check: budgets(checkForceAt)},

	{name: "takeall/hold-refused-leaves-nothing", says: saysAtomic,
		check: held(checkHoldRefusedTogether)},
	{name: "takeall/settle-unknown-with-others", says: saysSettleOnce + " " + saysAtomic,
		check: held(checkSettleUnknownTogether)},
	{name: "concurrency/holds", says: saysShared + " " + saysHold, check: held(checkCountHolds)},
	{name: "expiry/remembered", says: saysExpiry + " " + saysRemembered,
		check: held(checkRemembered)},
	{name: "lost/hold-asked-again", says: saysNeverReduces + " " + saysSettleOnce,
		needs: loseAnswer, check: held(checkHoldAskedAgain)},
}

func checkHoldCounts(h *heldKey) {
	h.hold(1, 6)
	h.left(4)
	h.holdRefused(2, 5)
	h.clock.add(h.timeout / 2)
	h.left(4)
	h.hold(2, 4)
	h.left(0)

	most := driver.MaxUnits
	h.change(most, h.timeout)
	h.hold(3, 1<<31)
	h.hold(4, 1<<31)
	h.left(most - 1<<32 - 10)
	h.hold(5, 1<<38+1<<31)
	h.left(most - 1<<38 - 3<<31 - 10)
	h.settle(5, 1<<32+1, 1<<32+1)
	h.renew(4, 1<<31)
}

func checkHoldFits(h *heldKey) {
	h.hold(1, 6)
	h.holdRefused(2, 5)
	h.left(4)
	h.renew(2, 0)
	h.hold(3, 4)
	h.holdRefused(4, 1)
	h.settle(3, 0, 0)
	if h.holder.InFlight() {
		return
	}
	h.want(force(h.key, h.holder, 3), true, 3)
	h.holdRefused(2, 2)
	h.hold(2, 1)
}

func checkHoldResize(h *heldKey) {
	h.hold(1, 3)
	h.hold(1, 8)
	h.left(2)
	h.want(hold(h.key, h.holder, 1, 2), true, 8)
	h.left(2)
	h.hold(2, 2)
	h.holdRefused(1, 9)
	h.renew(1, 8)
	h.want(holdFor(h.key, h.holder, 1, 8, h.timeout/16), true, 8)
	h.clock.add(h.timeout - time.Microsecond)
	h.left(0)
}

func checkHoldIdempotent(h *heldKey) {
	for range 3 {
		h.hold(1, 4)
		h.left(6)
	}
	h.hold(1, 5)
	h.want(hold(h.key, h.holder, 1, 4), true, 5)
	h.hold(2, 5)
	h.hold(1, 5)
	h.settle(2, 0, 0)
	h.settle(1, 0, 0)
	h.left(10)
}

func checkHoldIDs(h *heldKey) {
	ids := []uint64{1, 2, 255, 256, 1 << 31, 1<<31 + 1, 1 << 32, 1<<32 + 1, 1<<53 + 1, 1<<53 + 2,
		1 << 63, 1<<63 + 1, 1<<64 - 1, 0x0a0d, 0x3a68, 0x2500}
	h.change(int64(len(ids)), h.timeout)
	for i, id := range ids {
		h.hold(id, 1)
		h.left(int64(len(ids) - 1 - i))
	}
	for i, id := range ids {
		h.renew(id, 1)
		h.settle(id, 0, 0)
		h.left(int64(i + 1))
	}
}

func checkRenew(h *heldKey) {
	h.hold(1, 4)
	for range 4 {
		h.clock.add(h.timeout * 9 / 10)
		h.renew(1, 4)
		h.left(6)
	}
	if !h.holder.InFlight() {
		h.want(force(h.key, h.holder, 20), true, 20)
		h.renew(1, 4)
	}
	h.change(2, h.timeout)
	h.renew(1, 4)
	h.clock.add(h.timeout - time.Microsecond)
	h.left(0)
}

func checkRenewUnknown(h *heldKey) {
	h.renew(9, 0)
	h.left(10)
	h.hold(1, 4)
	h.renew(9, 0)
	h.left(6)
	h.settle(9, 3, 0)
	h.left(6)
}

func checkRenewLate(h *heldKey) {
	h.hold(1, 4)
	h.clock.add(3 * h.timeout)
	h.left(10)
	h.hold(2, 9)
	h.renew(1, 4)
	h.left(0)
	h.settle(2, 0, 0)
	h.left(6)
	h.clock.add(h.timeout - time.Microsecond)
	h.left(6)
	h.clock.add(24 * time.Hour)
	h.renew(1, 4)
	h.clock.add(longest(h.timeout) + 24*time.Hour)
	h.renew(1, 0)
	h.left(10)
}

func checkTimeOut(h *heldKey) {
	id := uint64(0)
	for _, length := range []time.Duration{0, h.timeout / 16, h.timeout, 16 * h.timeout} {
		id++
		h.want(holdFor(h.key, h.holder, id, 4, length), true, 4)
		h.left(6)
		if length == 0 {
			length = h.timeout
		}
		h.clock.add(longest(length))
		h.left(10)
	}
}

func checkTimeNotEarly(h *heldKey) {
	for i, length := range []time.Duration{0, h.timeout / 16, h.timeout/5 + time.Microsecond,
		h.timeout, 16 * h.timeout} {
		id := uint64(i) + 1
		h.clock.add(time.Duration(h.rand.Int64N(1e6)) * time.Microsecond)
		h.want(holdFor(h.key, h.holder, id, 4, length), true, 4)
		if length == 0 {
			length = h.timeout
		}
		for range 4 {
			h.clock.add((length - time.Microsecond) / 4)
			h.left(6)
		}
		h.settle(id, 0, 0)
	}
}

// checkDeadlines places holds of many lengths, and follows them to the end.
func checkDeadlines(h *heldKey) {
	h.change(1000, h.timeout)
	for id := range uint64(60) {
		h.clock.add(time.Duration(h.rand.Int64N(int64(h.timeout / 20))))
		length := h.timeout / 16 << h.rand.IntN(9)
		h.do(holdFor(h.key, h.holder, id+1, 1+h.rand.Int64N(9), length))
	}
	for range 60 {
		h.clock.add(h.timeout / 4)
		res := h.do(peek(h.key, h.holder, 1))
		if res.Remaining == 1000 {
			return
		}
	}
	h.clock.add(longest(16 * h.timeout))
	h.left(1000)
}

// checkFull holds more and more units under one key, each by an ID of its own: as many as a key may
// have if there is time for it, else as many as a store may be tempted to bound.
func checkFull(e *env) {
	const most, least = 65_536, 1100
	budget := 500 * time.Millisecond // more than least only on a fast machine
	if e.full {
		budget = time.Minute
	}
	holder, _ := inFlight(driver.Limit{Name: "held", Max: driver.MaxUnits}, timeout)
	key, begin, held := e.key(), time.Now(), uint64(0)
	defer e.do(reset(key, holder))
	short := hold(key, holder, most+2, 1)
	short.HoldTimeout = timeout / 16
	e.admit(short)
	e.clock.add(timeout / 8)
	for ; held < most && (held < least || time.Since(begin) < budget); held++ {
		e.admit(hold(key, holder, held+1, 1))
	}
	if left := e.left(key, holder); left != driver.MaxUnits-int64(held) {
		e.fatalf("%d units are left beside %d holds of one unit", left, held)
	}
	if held == most {
		if res := e.refuse(hold(key, holder, most+1, 1)); res.RetryAfter <= 0 {
			e.fatalf("a hold beside %d others returned %+v", held, res)
		}
		if res := e.do(hold(key, holder, most+2, 0)); res.Units != 0 {
			e.fatalf("a renewal beside %d holds returned %+v", held, res)
		}
		e.admit(hold(key, holder, 1, 2))
		e.do(settle(key, holder, 2, 0))
		e.admit(hold(key, holder, most+1, 1))
	}
	e.clock.add(longest(timeout))
	e.wantLeft(key, holder, driver.MaxUnits, "all holds have timed out")
	e.admit(hold(key, holder, 7, 0))
}

func checkHoldPeek(h *heldKey) {
	h.hold(1, 6)
	for range 2 {
		for id, fits := range map[uint64]int64{0: 4, 1: 10, 2: 4} {
			d := peek(h.key, h.holder, fits)
			d.ID = id
			h.want(d, true, 0)
			if fits < 10 {
				d.N++
				h.want(d, false, 0)
			}
		}
		h.left(4)
		h.clock.add(time.Second)
	}
	d := peek(h.key, h.holder, 3)
	d.ID = 2
	h.want(d, true, 0)
	h.renew(2, 0)
}

func checkTakeBeside(h *heldKey) {
	h.hold(1, 6)
	h.want(take(h.key, h.holder, 5), false, 0)
	h.want(take(h.key, h.holder, 4), true, 4)
	h.want(take(h.key, h.holder, 1), false, 0)
	h.want(force(h.key, h.holder, 2), true, 2)
	h.settle(1, 0, 0)
	h.left(4)
	h.want(take(h.key, h.holder, 4), true, 4)
}

// checkHoldRetryAfter waits as long as refusals say, and a microsecond less.
func checkHoldRetryAfter(h *heldKey) {
	id := uint64(0)
	for range h.scale(10) {
		id++
		length := h.timeout / 16 << h.rand.IntN(9)
		d := holdFor(h.key, h.holder, id, 1+h.rand.Int64N(8), length)
		if id%4 == 0 && !h.holder.InFlight() {
			d = take(h.key, h.holder, d.N)
		}
		h.clock.add(time.Duration(h.rand.Int64N(int64(h.timeout / 8))))
		res := h.do(d)
		if res.Allowed {
			continue
		}
		now := h.clock.now()
		h.clock.after(now, res.RetryAfter-time.Microsecond)
		if early := h.do(d); early.Allowed || early.RetryAfter != time.Microsecond {
			h.fatalf("a microsecond before a RetryAfter of %v, a %v of %d returned %+v",
				res.RetryAfter, d.Op, d.N, early)
		}
		h.clock.after(now, res.RetryAfter)
		h.want(d, true, d.N)
	}
}

func checkChangedMax(h *heldKey) {
	h.hold(1, 6)
	h.change(5, h.timeout)
	h.left(0)
	h.holdRefused(2, 1)
	h.renew(1, 6)
	h.change(20, h.timeout/2)
	h.left(14)
	h.want(holdFor(h.key, h.holder, 2, 14, h.timeout/2), true, 14)
	h.clock.add(h.timeout - time.Microsecond)
	h.left(14)
	h.clock.add(longest(h.timeout) - h.timeout)
	h.left(20)
}

func checkHoldBack(h *heldKey) {
	defer h.clock.set(h.clock.now())
	h.hold(1, 4)
	for _, back := range []time.Duration{3 * time.Hour, 9 * 365 * 24 * time.Hour} {
		h.renew(1, 4)
		h.clock.add(-back)
		h.renew(1, 4)
		h.clock.add(h.timeout - time.Microsecond)
		h.left(6)
		h.clock.add(longest(h.timeout) - h.timeout)
		h.left(10)
	}
	h.renew(1, 4)
	h.clock.add(-h.timeout / 2)
	h.left(6)
	h.clock.add(h.timeout - time.Microsecond)
	h.left(6)
	h.clock.add(longest(h.timeout) - h.timeout/2)
	h.left(10)
}

func checkHoldForward(h *heldKey) {
	h.hold(1, 4)
	h.clock.add(longest(h.timeout) + time.Hour)
	h.left(10)
	h.renew(1, 4)
	h.left(6)
	h.settle(1, 3, 3)
}

// checkHoldCorrupt makes the state corrupt. A store may keep the holds apart from it, as on servers
// with Lua, and has nothing else of calls in flight.
func checkHoldCorrupt(h *heldKey) {
	h.hold(1, 4)
	h.vandalize(h.key, h.holder)
	for _, d := range []driver.Demand{hold(h.key, h.holder, 1, 4), hold(h.key, h.holder, 1, 0),
		hold(h.key, h.holder, 2, 1), settle(h.key, h.holder, 1, 2), settle(h.key, h.holder, 2, 2),
		peek(h.key, h.holder, 1)} {
		if res, err := h.store.Take(h.ctx, d); !errors.Is(err, driver.ErrCorruptState) {
			h.fatalf("%v of %d on a corrupt state returned %+v and the error %v, want "+
				"ErrCorruptState", d.Op, d.N, res, err)
		}
		if h.lacks("takeall") {
			continue
		}
		other := hold(h.key, algorithm.Budget(h.algOf("other", 10)), 1, 3)
		out := make([]driver.Result, 2)
		for _, ds := range [][]driver.Demand{{d, other}, {other, d}} {
			if err := h.store.TakeAll(h.ctx, ds, out); !errors.Is(err, driver.ErrCorruptState) {
				h.fatalf("%v of %d on a corrupt state, with a hold under another limit, returned "+
					"%+v and the error %v, want ErrCorruptState", d.Op, d.N, out, err)
			}
			h.wantLeft(other.Key, other.Algorithm, 10, "a TakeAll that failed")
		}
	}
	h.do(reset(h.key, h.holder))
	h.left(10)
	h.hold(1, 10)
}

// checkHoldResults makes random demands and compares what the store returns with the model.
func checkHoldResults(e *env) {
	for round := range e.rounds(2 * len(ownKinds)) {
		e.playHolds(ownKinds[round%len(ownKinds)].make, e.seed+uint64(round))
	}
}

func (e *env) playHolds(kind holdmodel.Kind, seed uint64) {
	now := begin(seed)
	e.clock.set(now)
	p := holdmodel.NewPlayer(newRand(seed, 3), kind, now, 2*time.Minute)
	// the states, which show what a store may have forgotten: a new one has no clock of its own
	states, key := newModel(now), e.key()
	ends, over := int64(0), false // of the state of the algorithm inside, which servers keep apart
	for range 120 {
		d := p.Next()
		d.Key = key
		if p.Key.Ends != ends {
			ends, over = p.Key.Ends, false
		}
		inside := p.Key.Inside
		if over = over || p.Now >= ends; over && p.Now < ends {
			break
		}
		e.clock.set(p.Now)
		states.set(p.Now)
		_, writes := states.decide([]driver.Demand{d})
		if states.over(d) || brief(writes) {
			break
		}
		states.commit(writes)
		var got driver.Result
		if e.rand.IntN(4) == 0 && !e.lacks("takeall") {
			got = e.all(d)[0]
		} else {
			got = e.do(d)
		}
		if want := p.Do(d); !same(got, want) {
			e.fatalf("a random demand returned %s, the model says (%s=%d)\n%s", holdmodel.Show(got),
				seedVar, e.seed, strings.Join(p.Trace(), "\n"))
		}
		wrote := p.Key.Ends != ends || !bytes.Equal(p.Key.Inside, inside)
		if wrote && p.Key.Ends-p.Now < watchdog.Microseconds() {
			break // a server may forget it, as if brief
		}
	}
	e.do(reset(key, p.Holder()))
}

func checkSettleLess(h *heldKey) {
	h.hold(1, 6)
	h.settle(1, 2, 2)
	h.left(8)
	h.renew(1, 0)
}

func checkSettleMore(h *heldKey) {
	h.hold(1, 3)
	h.settle(1, 8, 8)
	h.left(2)
	h.hold(2, 2)
	h.settle(2, 50, 50)
	h.left(0)
	h.change(100, h.timeout)
	h.do(peek(h.key, h.holder, 1))
}

func checkSettleZero(h *heldKey) {
	h.hold(1, 6)
	h.settle(1, 0, 0)
	h.left(10)
	h.hold(2, 10)
}

func checkSettleTwice(h *heldKey) {
	h.hold(1, 6)
	h.hold(2, 1)
	h.settle(1, 2, 2)
	for range 2 {
		h.settle(1, 2, 0)
	}
	h.settle(2, 0, 0)
	h.settle(2, 5, 0)
	want := int64(8)
	if h.holder.InFlight() {
		want = 10
	}
	h.left(want)
}

func checkSettleLate(h *heldKey) {
	for i, late := range []time.Duration{0, time.Minute, 24*time.Hour - h.timeout} {
		id := uint64(i) + 1
		h.hold(id, 4)
		h.clock.add(longest(h.timeout) + late)
		h.left(10)
		h.settle(id, 3, 3)
		h.left(7)
		h.clock.add(3 * window)
	}
	h.hold(9, 4)
	h.clock.add(longest(h.timeout) + 24*time.Hour)
	h.settle(9, 3, 0)
	h.left(10)
}

func checkSettleUnknown(h *heldKey) {
	h.settle(9, 3, 0)
	h.left(10)
	h.hold(1, 4)
	h.settle(9, 3, 0)
	h.left(6)
}

func checkSettleAfterReset(h *heldKey) {
	h.hold(1, 4)
	h.do(reset(h.key, h.holder))
	h.left(10)
	h.renew(1, 0)
	h.settle(1, 3, 0)
	h.left(10)
}

func checkSettleInFlight(h *heldKey) {
	h.hold(1, 4)
	h.hold(2, 6)
	res := h.do(settle(h.key, h.holder, 1, 4))
	if inFlight := h.holder.InFlight(); inFlight != (res.Remaining == 4) ||
		inFlight != (res.Units == 0) {
		h.fatalf("a settlement under %s, InFlight %t, returned %+v", h.holder.Name(), inFlight, res)
	}
}

// checkSettleAtOnce has goroutines settle one hold at once.
func checkSettleAtOnce(h *heldKey) {
	const goroutines = 16
	for range h.scale(8) {
		h := h.newHeldKey(h.kind, 10)
		h.hold(1, 8)
		var recorded atomic.Int64
		h.together(goroutines, func(int) error {
			res, err := h.store.Take(h.ctx, settle(h.key, h.holder, 1, 3))
			recorded.Add(res.Units)
			return err
		})
		if n := recorded.Load(); n != 3 {
			h.fatalf("%d settlements of 3 units at once recorded %d", goroutines, n)
		}
		h.decide(settle(h.key, h.holder, 1, 3))
		h.left(7)
	}
}

// checkSettleInstant settles holds after a take: what was held joins the record of the take.
func checkSettleInstant(h *heldKey) {
	at := func(minute int, begin int64) { h.clock.after(begin, time.Duration(minute)*time.Minute) }
	holdFor := func(id uint64, n int64) {
		h.want(holdFor(h.key, h.holder, id, n, 16*h.timeout), true, n)
	}
	begin := h.clock.now()
	holdFor(1, 5)
	at(1, begin)
	h.want(take(h.key, h.holder, 1), true, 1)
	at(9, begin)
	h.settle(1, 7, 7) // 5 at minute 1, 2 now
	h.left(2)
	at(11, begin)
	h.left(8)
	at(19, begin)
	h.left(10)

	begin = h.clock.now()
	holdFor(2, 1)
	at(1, begin)
	h.want(take(h.key, h.holder, 1), true, 1)
	at(2, begin)
	holdFor(2, 5) // which enlarges it
	at(3, begin)
	h.settle(2, 5, 5) // no record is as late as the hold
	at(11, begin)
	h.left(5)
	at(13, begin)
	h.left(10)

	if h.lacks("takeall") {
		return
	}
	begin = h.clock.now()
	holdFor(3, 4)
	at(1, begin)
	h.want(take(h.key, h.holder, 1), true, 1)
	at(2, begin)
	together := settle(h.key, h.holder, 3, 4)
	want := h.decide(together)
	if out := h.all(take(h.key, h.algOf("other", 3), 1), together); !same(out[1], want) {
		h.fatalf("a settlement with a take returned %+v, want %+v", out[1], want)
	}
	at(11, begin)
	h.left(10)
}

// checkForceAt forces units at the time of records, before the first, and after the last.
func checkForceAt(h *heldKey) {
	forceAt := func(n, at int64) {
		d := force(h.key, h.holder, n)
		d.At = at
		h.want(d, true, n)
	}
	begin := h.clock.now()
	for range 3 {
		h.want(take(h.key, h.holder, 1), true, 1)
		h.clock.add(time.Minute)
	}
	forceAt(1, begin+1)
	forceAt(1, begin-time.Hour.Microseconds())
	forceAt(1, begin+(2*time.Minute).Microseconds()+1)
	forceAt(1, 0)
	for minute := range 5 {
		h.clock.after(begin, window+time.Duration(minute)*time.Minute-time.Microsecond)
		h.do(peek(h.key, h.holder, 1))
		h.clock.add(time.Microsecond)
		h.do(peek(h.key, h.holder, 1))
		forceAt(1, begin+time.Minute.Microseconds())
	}
}

func checkHoldRefusedTogether(h *heldKey) {
	for _, n := range []int64{4, 0} {
		other := take(h.key, h.algOf(fmt.Sprint("full", n), 3), 1)
		h.admit(take(other.Key, other.Algorithm, 3))
		out := h.all(hold(h.key, h.holder, 1, n), other)
		if !out[0].Allowed || out[0].Remaining != 10 || out[0].Units != 0 || out[1].Allowed {
			h.fatalf("a hold with a refused take returned %+v", out)
		}
		h.left(10)
		h.renew(1, 0)
	}
	h.hold(1, 8)
	other := take(h.key, h.algOf("other", 3), 1)
	if out := h.all(hold(h.key, h.holder, 2, 3), other); out[0].Allowed || !out[1].Allowed {
		h.fatalf("a refused hold with a take returned %+v", out)
	}
	h.wantLeft(other.Key, other.Algorithm, 3, "a refused hold")
	h.left(2)
	if out := h.all(other, hold(h.key, h.holder, 1, 9)); !allowed(out) || out[1].Units != 9 {
		h.fatalf("a hold with a take that fits returned %+v", out)
	}
}

func checkSettleUnknownTogether(h *heldKey) {
	other := take(h.key, h.algOf("other", 3), 1)
	for _, d := range []driver.Demand{settle(h.key, h.holder, 9, 3), hold(h.key, h.holder, 9, 0)} {
		out := h.all(d, other)
		if !allowed(out) || out[0].Units != 0 || out[1].Units != 1 {
			h.fatalf("a %v of an unknown ID with a take returned %+v", d.Op, out)
		}
	}
	h.left(10)
	h.wantLeft(other.Key, other.Algorithm, 1, "two takes")
}

// checkCountHolds has goroutines hold twice as many units as there are, then settle them all.
func checkCountHolds(h *heldKey) {
	const goroutines = 32
	each := h.scale(6)
	most := int64(goroutines * each / 2)
	h.change(most, h.timeout)
	var admitted, recorded atomic.Int64
	ids := make([][]uint64, goroutines)
	h.together(goroutines, func(g int) error {
		for i := range each {
			id := uint64(g*each + i + 1)
			res, err := h.store.Take(h.ctx, hold(h.key, h.holder, id, 1))
			if err != nil {
				return err
			}
			if res.Allowed {
				ids[g] = append(ids[g], id)
			}
			admitted.Add(res.Units)
		}
		return nil
	})
	if n := admitted.Load(); n != most {
		h.fatalf("%d of %d holds were admitted, want %d", n, goroutines*each, most)
	}
	h.together(goroutines, func(g int) error {
		for i, id := range ids[g] {
			res, err := h.store.Take(h.ctx, settle(h.key, h.holder, id, int64(i%2)))
			if err != nil {
				return err
			}
			recorded.Add(res.Units)
		}
		return nil
	})
	h.wantLeft(h.key, h.holder, most-recorded.Load(),
		fmt.Sprintf("the settlement of %d holds", most))
}

// checkRemembered renews a hold in the last microsecond in which it is remembered.
func checkRemembered(h *heldKey) {
	begin := h.clock.now()
	held := h.do(hold(h.key, h.holder, 1, 4)).ResetAfter
	for _, age := range []time.Duration{h.timeout, window, 2 * window, 12 * time.Hour,
		24*time.Hour + h.timeout - time.Microsecond, 24*time.Hour + held - time.Microsecond} {
		h.clock.after(begin, age)
		h.sweepIfCan()
	}
	h.renew(1, 4)
	h.sweepIfCan()
	h.settle(1, 4, 4)
}

// checkHoldAskedAgain loses the answers to holds and settlements, and asks again.
func checkHoldAskedAgain(h *heldKey) {
	unknown, left := 0, int64(10)
	for id := uint64(1); id <= 3; id++ {
		for _, d := range []driver.Demand{hold(h.key, h.holder, id, 3),
			settle(h.key, h.holder, id, 1)} {
			h.awaitLeft(h.key, h.holder)
			if errors.Is(h.loseOne(d), driver.ErrOutcomeUnknown) {
				unknown++
			}
			h.awaitLeft(h.key, h.holder)
			h.admit(d)
			want := left - 3
			if d.Op == driver.OpSettle {
				if want = left; !h.holder.InFlight() {
					want--
				}
				left = want
			}
			h.wantLeft(h.key, h.holder, want, fmt.Sprintf("a %v of which an answer got lost", d.Op))
		}
	}
	if unknown == 0 {
		h.fatalf("LoseAnswer was called before each of six calls, but no outcome is unknown")
	}
}
