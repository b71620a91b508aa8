package scripts

import (
	_ "embed"
	"encoding/binary"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
)

// Quota admits Max units from the first admission until a Window later, then all of them again. It
// is not exact: around the end of such a period up to 2·Max units lie in one Window. It is the
// example of docs/writing-an-algorithm.md.
type Quota struct{ limit driver.Limit }

func NewQuota(limit driver.Limit) Quota { return Quota{limit} }

func (q Quota) Name() string        { return "quota1" }
func (q Quota) Limit() driver.Limit { return q.limit }
func (q Quota) Validate() error     { return q.limit.Validate() }

// The state is three big-endian integers of 8 bytes: the stamp of the first admission, the Window
// of the last, and the units taken.
const (
	quotaSize = 24
	maxUsed   = 1 << 48
)

func (q Quota) Step(
	state []byte, now int64, d driver.Demand,
) (next []byte, keep time.Duration, res driver.Result) {
	res = driver.Result{Allowed: true, Limit: q.limit, Remaining: q.limit.Max}
	if d.Op == driver.OpReset {
		if len(state) > 0 {
			keep = time.Microsecond
		}
		return nil, keep, res
	}
	window := q.limit.Window.Microseconds()
	first, last, used, write := now, window, int64(0), false
	if len(state) > 0 {
		if len(state) != quotaSize {
			return nil, -1, driver.Result{}
		}
		first = int64(binary.BigEndian.Uint64(state))
		last = int64(binary.BigEndian.Uint64(state[8:]))
		used = int64(binary.BigEndian.Uint64(state[16:]))
		if first>>53 != 0 || last < 1 || last>>53 != 0 || used < 0 || used > maxUsed {
			return nil, -1, driver.Result{}
		}
		if now-first >= min(last, window) { // it has run out
			first, last, used = now, window, 0
		} else if first-now > window { // the clock was ahead
			first, write = now, true
		}
	}

	fits := d.N <= q.limit.Max-used
	switch {
	case d.Op == driver.OpForce, d.Op == driver.OpTake && fits:
		used, last, write = min(used+d.N, maxUsed), window, true
	case !fits:
		res.Allowed = false
		res.RetryAfter = time.Duration(first+min(last, window)-now) * time.Microsecond
	}
	res.Remaining = max(0, q.limit.Max-used)
	if used > 0 {
		res.ResetAfter = time.Duration(first+min(last, window)-now) * time.Microsecond
	}
	if !write {
		return state, 0, res
	}
	next = binary.BigEndian.AppendUint64(state[:0], uint64(first))
	next = binary.BigEndian.AppendUint64(next, uint64(last))
	next = binary.BigEndian.AppendUint64(next, uint64(used))
	return next, time.Duration(first+last-now) * time.Microsecond, res
}

//go:embed testdata/quota.lua
var quotaSource string

func (q Quota) Script() driver.Script {
	return driver.Script{Name: q.Name(), Source: quotaSource, Args: quotaArgs, Sums: true}
}

func quotaArgs(dst []int64, d driver.Demand) []int64 {
	limit := d.Algorithm.Limit()
	return append(dst, limit.Max, limit.Window.Microseconds())
}

var quotaOptions = &conformance.Options{
	Algorithms: []func(driver.Limit) driver.Algorithm{
		func(l driver.Limit) driver.Algorithm { return algorithm.SlidingLog(l) },
		func(l driver.Limit) driver.Algorithm { return NewQuota(l) },
	},
	Except: map[string]string{"window/rolling": "a Quota lets two Max into one rolling Window"},
}

func TestQuotaOnMemory(t *testing.T) {
	conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
		store, err := memorystore.New(&memorystore.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		return conformance.Harness{Store: store}
	}, quotaOptions)
}
