package conformance

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// A serverFault is a mistake that authors of stores on servers make, and the rules that must find
// it.
type serverFault struct {
	name   string
	rules  string // separated by spaces
	faults remoteFaults
}

var serverFaults = []serverFault{
	{"clock of the transaction", "clock/order clock/order-two-clients",
		remoteFaults{clockAtBegin: true}},
	{"clock of the client", "clock/skewed", remoteFaults{clockOfClient: true}},
	{"clock of another time zone", "clock/epoch clock/skewed", remoteFaults{clockOff: time.Hour}},
	{"clock in seconds", "clock/epoch", remoteFaults{clockSeconds: true}},
	{"lost answer is unavailable", "errors/lost-answer errors/ending-context errors/frozen",
		remoteFaults{lostUnavailable: true}},
	{"lost answer is repeated", "errors/lost-answer", remoteFaults{repeats: true}},
	{"lost answer is repeated by another ID", "lost/hold-asked-again",
		remoteFaults{otherIDs: true}},
	{"lost answer is the driver's error", "errors/lost-answer errors/ending-context errors/frozen",
		remoteFaults{lostOther: true}},
	{"key in the server's errors", "errors/no-key-after-lost-answer errors/no-key-while-frozen",
		remoteFaults{keyInErrors: true}},
	{"no deadline of its own", "errors/frozen-without-deadline", remoteFaults{noDeadline: true}},
	{"a frozen server is contended", "errors/frozen-without-deadline",
		remoteFaults{lateContended: true}},
	{"context ignored", "errors/frozen", remoteFaults{deafToContext: true}},
	{"context ignored and no deadline", "errors/frozen",
		remoteFaults{deafToContext: true, noDeadline: true}},
	{"end by the client's clock", "expiry/skewed", remoteFaults{expiresByClient: true}},
	{"sweep by the client's clock", "expiry/skewed", remoteFaults{sweepsByClient: true}},
	{"sweep a millisecond early", "expiry/sweep expiry/sweep-not-early",
		remoteFaults{sweepsEarly: time.Millisecond}},
	{"sweep a microsecond early", "expiry/sweep-not-early",
		remoteFaults{sweepsEarly: time.Microsecond}},
	{"sweep of what was renewed", "expiry/sweep-storm", remoteFaults{sweepsBlind: true}},
}

// TestServerFaultsAreNamed tries each rule up to three times, since a busy machine may hide a
// fault, and in a full run three times at once: every try must find it then.
func TestServerFaultsAreNamed(t *testing.T) {
	t.Parallel()
	eachAtOnce(t, serverFaults, func(t *testing.T, f serverFault) {
		t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
			for name := range strings.FieldsSeq(f.rules) {
				var wg sync.WaitGroup
				for range depth.Of(1, 3) {
					wg.Go(func() {
						var err error
						for i := 0; i < depth.Of(3, 1) && err == nil; i++ {
							err = tryRule(t, newRemote(f.faults), nil, name)
						}
						if err == nil {
							t.Errorf("%s does not find this fault", name)
						} else {
							t.Logf("%s: %.200v", name, err)
						}
					})
				}
				wg.Wait()
			}
		})
	})
}

// TestClockSetBack: a clock that is set back once is no fault of the store. One that goes back each
// time is.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	try := func(times int) error {
		end := make(chan struct{})
		var wg sync.WaitGroup
		defer wg.Wait()
		defer close(end)
		return tryRule(t, func(t testing.TB, now func() int64) Harness {
			// A busy machine takes longer than a deadline, which is not the subject.
			h := newRemote(remoteFaults{noDeadline: true})(t, now)
			wg.Go(func() {
				db := h.Store.(*remote).server
				for range times {
					select {
					case <-end:
						return
					case <-time.After(orderTime / 10):
					}
					db.mu.Lock()
					db.ahead -= orderTime
					db.mu.Unlock()
				}
			})
			return h
		}, nil, "clock/order")
	}
	if err := try(1); err != nil {
		t.Error(err)
	}
	if err := try(1 << 20); !errors.Is(err, errClockBack) {
		t.Errorf("got %v, want %v", err, errClockBack)
	}
}

// TestRemotePasses: the suite accepts a remote without faults.
func TestRemotePasses(t *testing.T) {
	t.Parallel()
	except := make(map[string]string)
	for _, group := range strings.Fields("identity step op result window takeall takeall-keys " +
		"concurrency algorithm hold settle") {
		except[group] = "TestReferencePasses tries it, on a store that does not wait"
	}
	except["expiry/sweep"] = except["op"]
	Run(t, func(t testing.TB, now func() int64) Harness {
		// A busy machine takes longer than the deadline, which only these rules are about.
		about := strings.Contains(t.Name(), "frozen")
		return newRemote(remoteFaults{noDeadline: !about})(t, now)
	}, &Options{Except: except})
}

// lockOrder returns the indices of ds in the order of their identities.
func lockOrder(ds []driver.Demand) []int {
	order := make([]int, len(ds))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := identityOf(ds[i]), identityOf(ds[j])
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.limit, b.limit),
			cmp.Compare(a.algorithm, b.algorithm))
	})
	return order
}
