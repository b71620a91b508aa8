package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/storeclock"
)

const (
	saysTake = "OpTake admits and records N units, or refuses and records nothing."
	saysPeek = "OpPeek returns what OpTake would, and records nothing. Remaining does not count " +
		"the N units."
)

var volumeRules = []rule{
	{name: "op/many-records",
		says: saysTake + " " + saysKeep + " " + saysClock, check: checkManyRecords},
	{name: "step/large-state", says: saysKeep, check: checkLargeState},
	{name: "concurrency/many-calls", says: saysShared + " " + saysTake + " " + saysPeek + " " +
		saysClock, check: checkManyCalls},
}

// checkManyRecords takes one unit at a time, each at another instant, as often as it can in a few
// seconds. Each must be there until it leaves the window, and no longer.
func checkManyRecords(e *env) {
	records, least, budget := 5_600, 1_100, e.atMost(1500*time.Millisecond, time.Minute)
	if e.full {
		records = 100_000
	}
	key, a, begin := e.key(), e.algOf("l", driver.MaxUnits), time.Now()
	var stamps []int64
	for len(stamps) < records && (len(stamps) < least || time.Since(begin) < budget) {
		e.clock.add(time.Duration(1+e.rand.IntN(1000)) * time.Microsecond)
		res := e.admit(take(key, a, 1))
		stamps = append(stamps, e.clock.us.Load())
		if left := driver.MaxUnits - int64(len(stamps)); res.Remaining != left {
			e.fatalf("%d units are left after %d takes of one unit, want %d",
				res.Remaining, len(stamps), left)
		}
	}
	full := e.algOf("l", int64(len(stamps)))
	if res := e.refuse(take(key, full,
		1)); res.RetryAfter != time.Duration(stamps[0]-e.clock.us.Load())*time.Microsecond+window {
		e.fatalf("RetryAfter with %d records is %v", len(stamps), res.RetryAfter)
	}
	for _, gone := range []int{1, 2, 63, len(stamps) / 3, len(stamps) - 1000, len(stamps) - 1,
		len(stamps)} {
		e.clock.after(stamps[gone-1], window-time.Microsecond)
		e.wantLeft(key, full, int64(gone)-1,
			fmt.Sprintf("all but %d of %d records have left the window",
				len(stamps)-gone+1, len(stamps)))
		e.clock.after(stamps[gone-1], window)
		e.wantLeft(key, full, int64(gone),
			fmt.Sprintf("all but %d of %d records have left the window",
				len(stamps)-gone, len(stamps)))
	}
	e.admit(reset(key, a))
}

// large is an algorithm whose states are large: it counts units, after bytes that only fill the
// state.
type large struct {
	driver.Algorithm
	filling string
}

func (l large) Name() string { return "large" }

func (l large) Step(
	state []byte, _ int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	res := driver.Result{Allowed: true, Limit: l.Limit(), Remaining: l.Limit().Max}
	if d.Op == driver.OpReset {
		return nil, time.Microsecond, res
	}
	used := byte(0)
	if size := len(l.filling); len(state) > 0 {
		if len(state) != size+1 || string(state[:size]) != l.filling {
			return nil, -1, driver.Result{}
		}
		used = state[size]
	}
	keep := time.Duration(0)
	if d.Op == driver.OpTake {
		used, keep, res.Units = used+byte(d.N), window, d.N
	}
	res.Remaining -= int64(used)
	return append([]byte(l.filling), used), keep, res
}

// largeSource fills the state with one byte: a server would take long to make others.
const largeSource = `
local function step(key, tail, now, op, n, at, args, pos)
  local max, size = struct.unpack('>I7I7', args, pos)
  if op == 3 then return 1, max, 0, 0, now, 1, '' end
  local used = 0
  if tail ~= '' then
    if redis.call('STRLEN', key) ~= size + 1 then return nil end
    used = string.byte(tail, -1)
  end
  if op ~= 0 then return 1, max - used, 0, 0, now end
  used = used + n
  return 1, max - used, 0, 0, now, 600000000, string.rep('x', size) .. string.char(used)
end
`

func (l large) Script() driver.Script {
	return driver.Script{Name: l.Name(), Source: largeSource,
		Args: func(dst []int64, d driver.Demand) []int64 {
			return append(dst, d.Algorithm.Limit().Max, int64(len(d.Algorithm.(large).filling)))
		}}
}

// checkLargeState has the store keep states of up to 2 MiB that cannot be compressed, as logs of
// 100,000 records have.
func checkLargeState(e *env) {
	for _, size := range []int{1 << 8, 1 << 12, 1<<16 - 8, 1 << 16, 1 << 18, 1<<20 + 1, 1 << 21} {
		filling := make([]byte, size)
		for i := range filling {
			filling[i] = byte(e.rand.Uint32())
		}
		key, a := e.key(), large{e.alg(5), string(filling)}
		for want := int64(4); want >= 2; want-- {
			res, err := e.store.Take(e.ctx, take(key, a, 1))
			if err != nil || res.Remaining != want {
				e.fatalf("a take on a state of about %d bytes returned %+v and the error %v, "+
					"want %d left", size, res, err, want)
			}
			e.clock.add(time.Second)
		}
		e.wantLeft(key, a, 2, fmt.Sprintf("three takes on a state of about %d bytes", size))
		e.admit(reset(key, a))
		e.wantLeft(key, a, 5, "a reset")
	}
}

// tally is what was recorded under a key, according to the store's results.
type tally struct {
	key  string
	used atomic.Int64
}

// checkManyCalls makes as many calls as it can in a few seconds. What they record must add up: a
// fault of one call in a thousand shows.
func checkManyCalls(e *env) {
	const goroutines, each = 64, 50
	rounds, budget := 8, e.atMost(1500*time.Millisecond, time.Minute)
	if e.full {
		rounds = 400
	}
	c := &calls{env: e, free: e.algOf("free", driver.MaxUnits),
		other: e.algOf("other", driver.MaxUnits), most: e.algOf("most", 5)}
	for i := range c.held {
		c.held[i] = algorithm.Budget(e.algOf(fmt.Sprint("held", i), driver.MaxUnits))
	}
	c.tallies, c.others, c.settled = make([]tally, 8), make([]tally, 8), make([]tally, 8)
	for i := range c.tallies {
		c.tallies[i].key = e.key()
		c.others[i].key = c.tallies[i].key
		c.settled[i].key = c.tallies[i].key
		e.admit(take(c.tallies[i].key, c.most, 4))
	}
	own := make([]string, goroutines)
	for i := range own {
		own[i] = e.key()
	}
	begin := time.Now()
	for round := 0; round < rounds && (round == 0 || time.Since(begin) < budget); round++ {
		e.clock.add(time.Duration(e.rand.IntN(2_000_000)) * time.Microsecond)
		c.now = e.clock.now()
		e.together(goroutines, func(g int) error {
			r := rand.New(rand.NewPCG(e.seed, uint64(round*goroutines+g)))
			for range each {
				if err := c.call(r, own[g]); err != nil {
					return fmt.Errorf("after about %d calls %w", (round*goroutines+g)*each, err)
				}
			}
			return nil
		})
		for i := range c.tallies {
			after := fmt.Sprintf("%d calls at once", goroutines*each)
			e.wantLeft(c.tallies[i].key, c.free, driver.MaxUnits-c.tallies[i].used.Load(), after)
			e.wantLeft(c.others[i].key, c.other, driver.MaxUnits-c.others[i].used.Load(), after)
			e.wantLeft(c.tallies[i].key, c.most, 1, after)
			for _, a := range c.held {
				e.wantLeft(c.settled[i].key, a, driver.MaxUnits-c.settled[i].used.Load(), after)
			}
		}
	}
}

// calls are what checkManyCalls makes: on limits that never refuse, and on one that has one unit
// left.
type calls struct {
	*env
	free, other, most driver.Algorithm
	tallies, others   []tally
	held              [2]driver.Algorithm
	settled           []tally // of each of held
	ids               atomic.Uint64
	now               int64
}

// call makes a random call, or two that belong together. own is a key that no other goroutine uses.
func (c *calls) call(r *rand.Rand, own string) error {
	i := r.IntN(len(c.tallies))
	key, n := c.tallies[i].key, 1+r.Int64N(3)
	switch op := r.IntN(16); op {
	case 0, 1, 2, 3:
		return c.want(peek(key, c.free, n), true)
	case 4, 5:
		return c.want(take(key, c.most, 2), false)
	case 6:
		c.tallies[i].used.Add(n)
		return c.want(force(key, c.free, n), true)
	case 7:
		if err := c.want(take(own, c.most, n), true); err != nil {
			return err
		}
		res, err := c.store.Take(c.ctx, peek(own, c.most, 1))
		if left := c.most.Limit().Max - n; err == nil && res.Remaining != left {
			err = fmt.Errorf("a peek after a take of %d returned %+v, want %d left", n, res, left)
		}
		if err != nil {
			return err
		}
		return c.want(reset(own, c.most), true)
	case 8, 9:
		if c.lacks("takeall") {
			return nil
		}
		c.tallies[i].used.Add(n)
		c.others[i].used.Add(1)
		out := make([]driver.Result, 2)
		err := c.store.TakeAll(c.ctx,
			[]driver.Demand{take(key, c.free, n), take(key, c.other, 1)}, out)
		if err == nil && !allowed(out) {
			err = fmt.Errorf("a TakeAll that fits returned %+v", out)
		}
		return err
	case 10:
		res, err := c.store.Take(c.ctx, storeclock.Show(own))
		if now := storeclock.Of(res, c.now); err == nil && now != c.now {
			err = fmt.Errorf("at the time %d the store's clock is at %d", c.now, now)
		}
		return err
	case 11, 12:
		c.settled[i].used.Add(n)
		return c.reserve(r, key, n)
	}
	c.tallies[i].used.Add(n)
	return c.want(take(key, c.free, n), true)
}

// reserve holds units under each of held, may renew the holds, and records n units, by TakeAll or
// one by one.
func (c *calls) reserve(r *rand.Rand, key string, n int64) error {
	id := c.ids.Add(1)
	steps := []driver.Demand{hold(key, nil, id, 3), hold(key, nil, id, 0), settle(key, nil, id, n)}
	if r.IntN(4) > 0 {
		steps = slices.Delete(steps, 1, 2)
	}
	for _, d := range steps {
		want := int64(3)
		if d.Op == driver.OpSettle {
			want = n
		}
		ds, out := []driver.Demand{d, d}, make([]driver.Result, 2)
		for i, a := range c.held {
			ds[i].Algorithm = a
		}
		var err error
		if together := r.IntN(2) == 0; together && !c.lacks("takeall") {
			err = c.store.TakeAll(c.ctx, ds, out)
		} else {
			for i := 0; i < len(ds) && err == nil; i++ {
				out[i], err = c.store.Take(c.ctx, ds[i])
			}
		}
		for i, res := range out {
			if err == nil && (!res.Allowed || res.Units != want) {
				err = fmt.Errorf("%v of %d returned %+v, want %d Units", ds[i].Op, d.N, res, want)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// want makes d on the store, and checks whether it is admitted.
func (c *calls) want(d driver.Demand, admitted bool) error {
	res, err := c.store.Take(c.ctx, d)
	if err == nil && res.Allowed != admitted {
		err = fmt.Errorf("%v of %d at %d returned %+v", d.Op, d.N, c.now, res)
	}
	return err
}
