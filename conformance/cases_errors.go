package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

const (
	saysClosed = "After its own Close a store returns ErrClosed. If only the client that it " +
		"runs on was closed, ErrUnavailable is enough."
)

var errorRules = []rule{
	{name: "errors/validation", says: saysCheck, check: checkValidation},
	{name: "errors/before-io", says: saysCheck, needs: closing, check: checkBeforeIO},
	{name: "errors/closed", says: saysClosed, needs: closing, check: checkClosed},
	{name: "errors/ended-context", says: saysCheck, check: checkEndedContext},
	{name: "errors/ending-context", says: saysReturn + " " + saysError, check: checkEndingContext},
	{name: "errors/contended", says: saysContended, check: checkContended},
	{name: "errors/corrupt-state", says: saysCorrupt, check: checkCorrupt},
	{name: "errors/no-script",
		says: "Script returns the same step for servers that run Lua. The zero Script means that " +
			"there is none.", check: checkNoScript},
	{name: "errors/unsupported-writes-nothing", says: saysUnsupported, check: checkUnsupported},
}

// invalid returns demands that CheckTake refuses.
func (e *env) invalid(key string) []driver.Demand {
	a := e.alg(5)
	under := func(limit driver.Limit) driver.Demand {
		return take(key, e.algorithms[0](limit), 1)
	}
	ds := []driver.Demand{
		take("", a, 1), take(key, nil, 1), {Key: key, Algorithm: a, Op: 200, N: 1},
		{Key: key, Algorithm: a, Op: 255, N: 1},
		take(key, a, 6), peek(key, a, 6), take(key, a, driver.MaxUnits), reset("", a),
		reset(key, nil),
		under(driver.Limit{Name: "l", Max: 0, Window: window}),
		under(driver.Limit{Name: "l", Max: -1, Window: window}),
		under(driver.Limit{Name: "l", Max: driver.MaxUnits + 1, Window: window}),
		under(driver.Limit{Name: "l", Max: 1}),
		under(driver.Limit{Name: "l", Max: 1, Window: driver.MinWindow - 1}),
		under(driver.Limit{Name: "l", Max: 1, Window: driver.MaxWindow + 1}),
	}
	held := algorithm.Budget(a)
	ds = append(ds, hold(key, a, 1, 1), settle(key, a, 1, 1), hold(key, held, 0, 1),
		settle(key, held, 0, 1), hold(key, held, 1, -1), settle(key, held, 1, -1),
		hold(key, held, 1, 6), settle(key, held, 1, driver.MaxUnits+1),
		holdFor(key, held, 1, 1, held.HoldTimeout()/16-1),
		holdFor(key, held, 1, 1, 16*held.HoldTimeout()+1))
	ds = append(ds, partly(take(key, a, 9), 6), partly(take(key, a, 3), 4),
		partly(take(key, a, 3), -1), partly(peek(key, a, 3), 1), partly(force(key, a, 3), 1),
		partly(reset(key, a), 1), partly(settle(key, held, 1, 3), 1),
		partly(hold(key, held, 1, 0), 1), partly(take(key, a, driver.MaxUnits+1), 1),
		partly(hold(key, held, 1, driver.MaxUnits+1), 1))
	for _, n := range []int64{0, -1, -1 << 63, driver.MaxUnits + 1, 1<<63 - 1} {
		ds = append(ds, take(key, a, n), peek(key, a, n), force(key, a, n))
	}
	return ds
}

// wantCheck checks that got is what CheckTake or CheckTakeAll returned.
func (e *env) wantCheck(what string, got, want error) {
	if want == nil {
		e.fatalf("%s: the suite expects an error", what)
	}
	if got == nil || got.Error() != want.Error() {
		e.fatalf("%s returned the error %v, want %q", what, got, want)
	}
	for _, kind := range []error{driver.ErrInvalid, driver.ErrExceedsLimit, driver.ErrUnavailable,
		driver.ErrOutcomeUnknown, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(got, kind) != errors.Is(want, kind) {
			e.fatalf("%s returned the error %q: errors.Is(err, %q) is %t, want %t",
				what, got, kind, errors.Is(got, kind), errors.Is(want, kind))
		}
	}
}

func checkValidation(e *env) {
	key := e.key()
	for _, d := range e.invalid(key) {
		_, err := e.store.Take(e.ctx, d)
		e.wantCheck(fmt.Sprintf("%v of %d", d.Op, d.N), err, driver.CheckTake(e.ctx, d))
	}
	a := e.alg(5)
	e.wantLeft(key, a, 5, "demands that are not valid")
	e.admit(take(key, a, 5))
	e.admit(force(key, a, driver.MaxUnits))
}

func checkTakeAllValidation(e *env) {
	good := e.limits(2)
	key := good[0].Key
	check := func(what string, ds []driver.Demand, room int) {
		out := make([]driver.Result, room)
		e.wantCheck(what, e.store.TakeAll(e.ctx, ds, out), driver.CheckTakeAll(e.ctx, ds, out))
	}
	check("a TakeAll of nothing", nil, 0)
	check("a TakeAll with room for one more result", good, 3)
	check("a TakeAll with room for one result less", good, 1)
	for i, d := range e.invalid(key) {
		check(fmt.Sprintf("a TakeAll with %v of %d", d.Op, d.N),
			[]driver.Demand{good[0], d, good[1]}, 3)
		if i == 0 {
			check("a TakeAll that begins with a demand that is not valid",
				[]driver.Demand{d, good[0], good[1]}, 3)
		}
	}
	check("a TakeAll with parts of different units",
		[]driver.Demand{partly(good[0], 1), partly(take(key, good[1].Algorithm, 2), 1)}, 2)
	check("a TakeAll with different parts", []driver.Demand{
		partly(take(key, good[0].Algorithm, 2), 1), partly(take(key, good[1].Algorithm, 2), 2)}, 2)
	wider := e.algorithms[0](driver.Limit{Name: good[0].Algorithm.Limit().Name, Max: 99,
		Window: 2 * window})
	check("a TakeAll with two demands on one state",
		[]driver.Demand{good[0], good[1], peek(key, wider, 1)}, 3)
	many := append(e.limits(30), good...)
	check("a TakeAll with two of many demands on one state", append(many, good[0]), len(many)+1)
	for _, d := range good {
		e.wantLeft(d.Key, d.Algorithm, d.Algorithm.Limit().Max, "TakeAlls that are not valid")
	}
}

func checkBeforeIO(e *env) {
	if err := e.harness.Close(); err != nil {
		e.fatalf("Close: %w", err)
	}
	checkInvalid := func(d driver.Demand) {
		_, err := e.store.Take(e.ctx, d)
		e.wantCheck(fmt.Sprintf("%v of %d on a closed store", d.Op, d.N), err,
			driver.CheckTake(e.ctx, d))
	}
	for _, d := range e.invalid(e.key()) {
		checkInvalid(d)
	}
	ended, cancel := context.WithCancel(e.ctx)
	cancel()
	d := take(e.key(), e.alg(5), 1)
	_, err := e.store.Take(ended, d)
	e.wantCheck("a take on a closed store when the context has ended", err,
		driver.CheckTake(ended, d))
}

func checkClosed(e *env) {
	key, a := e.key(), e.alg(5)
	e.admit(take(key, a, 1))
	if err := e.harness.Close(); err != nil {
		e.fatalf("Close: %w", err)
	}
	want, closed := driver.ErrClosed, "a closed store"
	if e.harness.ClosesClient {
		want, closed = driver.ErrUnavailable, "a store whose client is closed"
	}
	for _, d := range []driver.Demand{take(key, a, 1), peek(key, a, 1), force(key, a, 1),
		hold(key, algorithm.Budget(a), 1, 1), settle(key, algorithm.Budget(a), 1, 1),
		reset(key, a)} {
		if res, err := e.store.Take(e.ctx, d); !errors.Is(err, want) {
			e.fatalf("%v on %s returned %+v and the error %v, want %q",
				d.Op, closed, res, err, want)
		}
	}
	if _, ok := e.except["takeall"]; !ok {
		if err := e.store.TakeAll(e.ctx, e.limits(2),
			make([]driver.Result, 2)); !errors.Is(err, want) {
			e.fatalf("TakeAll on %s returned the error %v, want %q", closed, err, want)
		}
	}
}

func checkEndedContext(e *env) {
	cancelled, cancel := context.WithCancel(e.ctx)
	cancel()
	late, cancel := context.WithDeadline(e.ctx, time.Unix(1, 0))
	defer cancel()
	ds := e.limits(2)
	for _, ctx := range []context.Context{cancelled, late} {
		for _, op := range []driver.Op{driver.OpTake, driver.OpPeek, driver.OpForce,
			driver.OpReset, driver.OpHold, driver.OpSettle} {
			d := ds[0]
			d.Op = op
			if op == driver.OpHold || op == driver.OpSettle {
				d.Algorithm, d.ID = algorithm.Budget(d.Algorithm), 1
			}
			_, err := e.store.Take(ctx, d)
			e.wantCheck(fmt.Sprintf("%v when the context has ended", op), err,
				driver.CheckTake(ctx, d))
		}
		if _, ok := e.except["takeall"]; !ok {
			out := make([]driver.Result, len(ds))
			e.wantCheck("TakeAll when the context has ended", e.store.TakeAll(ctx, ds, out),
				driver.CheckTakeAll(ctx, ds, out))
		}
	}
	for _, d := range ds {
		e.wantLeft(d.Key, d.Algorithm, d.Algorithm.Limit().Max, "calls whose context had ended")
	}
}

// checkContended has hundreds of goroutines take from one key at once: no error may be an outage,
// in which a policy admits.
func checkContended(e *env) {
	const goroutines, most = 300, 10
	key, a := e.key(), e.alg(most)
	var l ledger
	e.together(goroutines, func(int) error {
		res, err := e.store.Take(e.ctx, take(key, a, 1))
		switch {
		case driver.IsOutage(err):
			return fmt.Errorf("the error is an outage, not ErrContended: %w", err)
		case err == nil && !res.Allowed:
			return nil
		}
		return l.note(err)
	})
	e.wantRecorded(&l, key, a)
	if n := l.done.Load(); n > most {
		e.fatalf("%d takes were admitted, the limit is %d", n, most)
	}
}

func checkCorrupt(e *env) {
	key, a := e.key(), e.alg(5)
	e.admit(take(key, a, 2))
	e.vandalize(key, a)
	for _, d := range []driver.Demand{take(key, a, 1), peek(key, a, 1), force(key, a, 9),
		take(key, a, 5)} {
		if res, err := e.store.Take(e.ctx, d); !errors.Is(err, driver.ErrCorruptState) {
			e.fatalf("%v on a corrupt state returned %+v and the error %v, want "+
				"ErrCorruptState", d.Op, res, err)
		}
	}
	e.admit(reset(key, a))
	e.wantLeft(key, a, 5, "the reset of a corrupt state")
	e.admit(take(key, a, 5))
}

func checkTakeAllCorrupt(e *env) {
	for corrupt := range 3 {
		ds := e.limits(3)
		for _, d := range ds {
			e.admit(d)
		}
		e.vandalize(ds[corrupt].Key, ds[corrupt].Algorithm)
		for range 2 {
			if err := e.store.TakeAll(e.ctx, ds,
				make([]driver.Result, 3)); !errors.Is(err, driver.ErrCorruptState) {
				e.fatalf("a TakeAll on states of which one is corrupt returned the error "+
					"%v, want ErrCorruptState", err)
			}
		}
		for i, d := range ds {
			if i != corrupt {
				e.wantLeft(d.Key, d.Algorithm, d.Algorithm.Limit().Max-1, "a TakeAll that failed")
			}
		}
		limit := ds[corrupt].Algorithm.Limit().Max
		resetting := slices.Clone(ds)
		resetting[corrupt] = reset(ds[corrupt].Key, ds[corrupt].Algorithm)
		other := &resetting[(corrupt+1)%3]
		other.N = other.Algorithm.Limit().Max
		if out := e.all(resetting...); allowed(out) || !out[corrupt].Allowed ||
			out[corrupt].Remaining != limit {
			e.fatalf("a refused TakeAll with a Reset of a corrupt state returned %+v", out)
		}
		if err := e.store.TakeAll(e.ctx, ds,
			make([]driver.Result, 3)); !errors.Is(err, driver.ErrCorruptState) {
			e.fatalf("a TakeAll that was refused reset the state: %v", err)
		}
		other.N = 1
		if out := e.all(resetting...); !allowed(out) {
			e.fatalf("a TakeAll with a Reset of a corrupt state returned %+v", out)
		}
		if out := e.all(ds...); !allowed(out) ||
			out[corrupt].Remaining != ds[corrupt].Algorithm.Limit().Max-1 {
			e.fatalf("after the reset a TakeAll returned %+v", out)
		}
	}
}

func checkNoScript(e *env) {
	key, a := e.key(), e.alg(5)
	d := take(key, scriptless{a}, 2)
	_, _, want := d.Step(nil, e.clock.now())
	switch res, err := e.store.Take(e.ctx, d); {
	case err == nil && !same(res, want):
		e.fatalf("a take without a script returned %+v, want %+v", res, want)
	case err == nil:
		e.wantLeft(key, a, 3, "a take of two")
	case !errors.Is(err, driver.ErrNoScript):
		e.fatalf("a take without a script returned the error %v, want ErrNoScript "+
			"or a decision", err)
	default:
		e.wantLeft(key, a, 5, "a take that failed")
	}
}

func checkUnsupported(e *env) {
	for _, ds := range [][]driver.Demand{e.limits(3), e.spread(12)} {
		out := make([]driver.Result, len(ds))
		err := e.store.TakeAll(e.ctx, ds, out)
		taken := int64(1)
		if errors.Is(err, errors.ErrUnsupported) {
			taken = 0
		} else if err != nil || !allowed(out) {
			e.fatalf("TakeAll returned %+v and the error %v, want all admitted or "+
				"ErrUnsupported", out, err)
		}
		for _, d := range ds {
			e.wantLeft(d.Key, d.Algorithm, d.Algorithm.Limit().Max-taken,
				fmt.Sprintf("a TakeAll with the error %v", err))
		}
	}
}
