package linear

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

const now = int64(1_800_000_000_000_000)

var (
	two   = algorithm.SlidingLog(driver.PerMinute("minute", 2))
	three = algorithm.SlidingLog(driver.PerMinute("three", 3))
)

func take(a driver.Algorithm) driver.Demand {
	return driver.Demand{Key: "k", Algorithm: a, N: 1}
}

// call is an operation at a point in time of the recording, with the result of a take when used
// units had been taken.
func call(from, to time.Duration, used int64, ds ...driver.Demand) conformance.Operation {
	op := conformance.Operation{Call: from, Return: to, Now: now, Demands: ds}
	for _, d := range ds {
		var state []byte
		for range used {
			state, _, _ = take(d.Algorithm).Step(state, now)
		}
		_, _, res := d.Step(state, now)
		op.Results = append(op.Results, res)
	}
	return op
}

func TestCheck(t *testing.T) {
	tests := []struct {
		name    string
		history []conformance.Operation
		legal   bool
	}{
		{"nothing", nil, true},
		{"one after the other", []conformance.Operation{call(0, 1, 0, take(two)),
			call(2, 3, 1, take(two)), call(4, 5, 2, take(two))}, true},
		{"overlapping, in the order of the results",
			[]conformance.Operation{call(0, 9, 1, take(two)), call(1, 5, 0, take(two))}, true},
		{"two first results",
			[]conformance.Operation{call(0, 9, 0, take(two)), call(1, 5, 0, take(two))}, false},
		{"second result before the first was called",
			[]conformance.Operation{call(0, 1, 1, take(two)), call(2, 3, 0, take(two))}, false},
		{"refused too early",
			[]conformance.Operation{call(0, 1, 0, take(two)), call(2, 3, 2, take(two))}, false},
		{"several at once", []conformance.Operation{call(0, 9, 0, take(two), take(three)),
			call(1, 5, 1, take(three))}, true},
		{"between the parts of several",
			[]conformance.Operation{call(0, 9, 0, take(two), take(three)),
				call(1, 5, 0, take(three)), call(6, 7, 1, take(three))}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Check(tt.history)
			if tt.legal && err != nil || !tt.legal && !errors.Is(err, ErrNotLinearizable) {
				t.Errorf("Check returned %v, linearizable: %t", err, tt.legal)
			}
		})
	}
}

func TestCheckRefusedTogether(t *testing.T) {
	full := call(0, 1, 0, take(two), take(three))
	full.Demands = slices.Clone(full.Demands)
	full.Demands[0].N = 2
	full.Results[0].Remaining, full.Results[0].Units = 0, 2
	refused := call(2, 3, 1, take(two), take(three))
	refused.Demands = slices.Clone(refused.Demands)
	for i := range refused.Demands {
		state, _, _ := full.Demands[i].Step(nil, now)
		_, _, refused.Results[i] = refused.Demands[i].Peek(state, now)
	}
	after := call(4, 5, 1, take(three))
	if err := Check([]conformance.Operation{full, refused, after}); err != nil {
		t.Errorf("a refused TakeAll that left no trace: %v", err)
	}
	after = call(4, 5, 2, take(three))
	if err := Check([]conformance.Operation{full, refused,
		after}); !errors.Is(err, ErrNotLinearizable) {
		t.Errorf("a refused TakeAll that was charged in part: %v", err)
	}
}

// TestCheckHolds: a settlement ends the hold of its ID once.
func TestCheckHolds(t *testing.T) {
	held := algorithm.Budget(two)
	var state []byte
	op := func(from, to time.Duration, kind driver.Op, n int64) conformance.Operation {
		d := driver.Demand{Key: "k", Algorithm: held, Op: kind, ID: 7, N: n}
		next, keep, res := d.Step(slices.Clone(state), now)
		if keep > 0 {
			state = next
		}
		return conformance.Operation{Call: from, Return: to, Now: now, Demands: []driver.Demand{d},
			Results: []driver.Result{res}}
	}
	history := []conformance.Operation{op(0, 1, driver.OpHold, 2), op(2, 9, driver.OpSettle, 1),
		op(3, 8, driver.OpSettle, 1), op(10, 11, driver.OpHold, 0)}
	if err := Check(history); err != nil {
		t.Errorf("two settlements at once of which one records: %v", err)
	}
	history[2].Results = history[1].Results
	if err := Check(history); !errors.Is(err, ErrNotLinearizable) {
		t.Errorf("two settlements that record: %v", err)
	}
}

func TestCheckRejectsWhatIsNoOperation(t *testing.T) {
	for _, op := range []conformance.Operation{{}, {Demands: []driver.Demand{take(two)}}} {
		if err := Check([]conformance.Operation{op}); err == nil ||
			errors.Is(err, ErrNotLinearizable) {
			t.Errorf("Check of %+v returned %v", op, err)
		}
	}
}

// TestMemoryStore runs the suite with the check on the memory store, whose own tests may not have
// the check's dependency.
func TestMemoryStore(t *testing.T) {
	except := map[string]string{}
	if !depth.Full {
		for group := range strings.FieldsSeq("identity step op result window hold settle least " +
			"clock expiry takeall takeall-keys errors lost algorithm ahead") {
			except[group] = "the package of the store tries it"
		}
		except["concurrency/many-calls"] = except["op"]
	}
	conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
		store, err := memorystore.New(&memorystore.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return conformance.Harness{
			Store:  store,
			Second: func(testing.TB) driver.Store { return store },
			Close:  store.Close,
		}
	}, &conformance.Options{CheckHistory: Check, Except: except})
}
