package scripts

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// TestDeniedCommand takes from a user each command of the scripts, and makes every kind of demand
// on states of each form, alone, in a TakeAll and batched. A call fails with ErrOutcomeUnknown if
// and only if it has changed a key.
func TestDeniedCommand(t *testing.T) {
	t.Parallel()
	servers.EachImage(t, func(t *testing.T, image string) {
		t.Parallel()
		server := servers.Start(t, image)
		clients.EachOn(t, image, func(t *testing.T, lib clients.Library) {
			if !usual(lib, image) {
				return
			}
			d := denial{admin: servers.Connect(t, server.Addr)}
			for _, right := range strings.Fields(clients.DecisionRights) {
				args := clients.ACL(clients.DecisionRights + " -" + right[1:])
				if err := d.admin.Do(t.Context(), args...).Err(); err != nil {
					t.Fatal(err)
				}
				c := lib.Client(t, clients.Dialing{Addrs: []string{server.Addr},
					Username: "cacher", Password: "hunter2"})
				d.check(t, right[1:], c)
			}
			d.wantBoth(t)
		})
	})
}

// usual reports whether a test runs at every commit: through go-redis, and on the newest server
// also through rueidis, from whose store that of valkey-go is generated.
func usual(lib clients.Library, image string) bool {
	return depth.Full || lib.Name == "go-redis" ||
		lib.Name == "rueidis" && image == servers.Newest()
}

// TestRenamedCommand is the same on servers that do not have a command.
func TestRenamedCommand(t *testing.T) {
	t.Parallel()
	servers.EachImage(t, func(t *testing.T, image string) {
		t.Parallel()
		for _, command := range []string{"time", "setrange"} {
			server := servers.Start(t, image, "--rename-command", command, command+"-no-more")
			clients.EachOn(t, image, func(t *testing.T, lib clients.Library) {
				if !usual(lib, image) {
					return
				}
				d := denial{admin: servers.Connect(t, server.Addr)}
				d.check(t, command, lib.Client(t, clients.Dialing{Addrs: []string{server.Addr}}))
			})
		}
	})
}

// TestWaitForRight: a Wait under FailWait goes on while a command is denied in the script, and is
// admitted when the right returns.
func TestWaitForRight(t *testing.T) {
	t.Parallel()
	servers.EachImage(t, func(t *testing.T, image string) {
		server := servers.Start(t, image)
		admin := servers.Connect(t, server.Addr)
		clients.EachOn(t, image, func(t *testing.T, lib clients.Library) {
			for _, command := range []string{"time", "getrange", "set"} {
				grant := func(rights string) {
					t.Helper()
					if err := errors.Join(admin.Do(t.Context(), clients.ACL(rights)...).Err(),
						admin.ACLLogReset(t.Context()).Err()); err != nil {
						t.Fatal(err)
					}
				}
				grant(clients.DecisionRights + " -" + command)
				s := lib.Client(t, clients.Dialing{Addrs: []string{server.Addr},
					Username: "cacher", Password: "hunter2"}).
					NewStore(t, &serverstore.Options{Timeout: clients.Patient})
				limiter, err := ratelimit.New(s, algorithm.SlidingLog(deniedLimit))
				if err != nil {
					t.Fatal(err)
				}
				waited := make(chan error, 1)
				go func() {
					_, err := limiter.WithPolicy(ratelimit.FailWait).Wait(t.Context(),
						servers.FreshKey(t))
					waited <- err
				}()
				servers.Await(t, func() (bool, error) {
					denied, err := admin.ACLLog(t.Context(), 1).Result()
					return len(denied) > 0, err
				})
				grant(clients.DecisionRights)
				if err := <-waited; err != nil {
					t.Errorf("without %s for a while: got %v, want an admission", command, err)
				}
			}
		})
	})
}

// A denial checks calls of a user who may not run a command.
type denial struct {
	admin   *redis.Client
	plain   int // calls that failed and changed nothing
	unknown int // calls that failed after a write
}

// deniedCall is a call with the keys of its demands.
type deniedCall struct {
	what   string
	ds     []driver.Demand
	keys   []string
	times  int // how many callers make it at once
	before []string
	errs   []error
}

var deniedLimit = driver.Limit{Name: "denied", Max: 1000, Window: time.Minute}

// deniedAlgorithms are all algorithms.
var deniedAlgorithms = []driver.Algorithm{
	algorithm.SlidingLog(deniedLimit),
	algorithm.GCRA(deniedLimit),
	algorithm.FixedWindow(deniedLimit),
	algorithm.SlidingWindowCounter(deniedLimit),
	algorithm.Blocking("denied", time.Minute),
}

// deniedStates are the values that a key has before a call. A line and a ring are forms of the log.
var deniedStates = map[string]struct {
	admissions int // a millisecond apart
	units      int64
	last       time.Duration // from now to the last admission
	value      string        // that is no state
}{
	"none":  {},
	"small": {admissions: 3, units: 1},
	"full":  {admissions: 1, units: 1000},
	"line":  {admissions: 50, units: 1},
	"ring":  {admissions: 500, units: 1},
	"ahead": {admissions: 50, units: 20, last: 3 * time.Minute},
	"list":  {value: "list"},
	"other": {value: "bytes"},
}

func (d *denial) check(t *testing.T, command string, c clients.Client) {
	t.Helper()
	opts := serverstore.Options{Prefix: servers.UniquePrefix(), Timeout: clients.Patient}
	if !strings.HasPrefix(opts.Prefix, "rl:") {
		opts.Prefix = "rl:" + opts.Prefix
	}
	if command == "pexpire" { // only used with a clock of the store's own
		opts.Now = func() int64 { return time.Now().UnixMicro() }
	}
	s := c.NewStore(t, &opts)
	var calls []*deniedCall
	for _, a := range deniedAlgorithms {
		for _, name := range slices.Sorted(maps.Keys(deniedStates)) {
			if _, isLog := a.(algorithm.Log); !isLog && (name == "line" || name == "ring") {
				continue
			}
			for _, op := range []driver.Op{
				driver.OpTake, driver.OpPeek, driver.OpForce, driver.OpReset,
			} {
				for _, frame := range []string{"one", "group", "single", "equal"} {
					calls = append(calls, d.prepare(t, opts.Prefix, a, name, op, frame))
				}
			}
		}
	}
	for _, a := range []algorithm.Held{heldBudget, algorithm.InFlight("calls", 9)} {
		for _, op := range []driver.Op{driver.OpHold, driver.OpSettle, driver.OpTake,
			driver.OpForce, driver.OpReset} {
			for _, frame := range []string{"one", "group", "single"} {
				if a.InFlight() && (op == driver.OpTake || op == driver.OpForce) {
					continue
				}
				calls = append(calls, d.prepareHeld(t, opts.Prefix, a, op, frame))
			}
		}
	}
	d.observe(t, calls, func(c *deniedCall, values []string) { c.before = values })
	for _, c := range calls {
		if c.times == 0 {
			c.errs = []error{s.TakeAll(t.Context(), c.ds, make([]driver.Result, len(c.ds)))}
		}
	}
	var batched sync.WaitGroup
	for _, c := range calls {
		if c.times > 0 {
			c.errs = make([]error, c.times)
		}
		for i := range c.times {
			batched.Go(func() { _, c.errs[i] = s.Take(t.Context(), c.ds[0]) })
		}
	}
	batched.Wait()
	d.observe(t, calls, func(c *deniedCall, after []string) {
		changed := !slices.Equal(c.before, after)
		recorded, unknown := false, false
		for _, err := range c.errs {
			recorded = recorded || err == nil
			unknown = unknown || errors.Is(err, driver.ErrOutcomeUnknown)
			switch {
			case err == nil, errors.Is(err, driver.ErrCorruptState):
			case !errors.Is(err, driver.ErrUnavailable):
				t.Errorf("without %s, %s: got %v, want ErrUnavailable", command, c.what, err)
			case errors.Is(err, driver.ErrOutcomeUnknown):
				d.unknown++
			default:
				d.plain++
			}
		}
		if unknown && !changed || changed && !unknown && !recorded {
			t.Errorf("without %s, %s: keys changed: %t, got %v", command, c.what, changed,
				errors.Join(c.errs...))
		}
	})
}

// prepare returns a call whose keys have the named state.
func (d *denial) prepare(
	t *testing.T, prefix string, a driver.Algorithm, name string, op driver.Op, frame string,
) *deniedCall {
	t.Helper()
	c := &deniedCall{what: fmt.Sprintf("%s, %v, %s, frame %s", a.Name(), op, name, frame)}
	demands := 1
	switch frame {
	case "group":
		demands = 2
	case "single":
		c.times = 1
	case "equal":
		c.times = 6
	}
	for range demands {
		key := servers.FreshKey(t)
		demand := driver.Demand{Key: key, Algorithm: a, N: 1, Op: op}
		stored := prefix + "{=" + key + "}:" + a.Limit().Name + ":" + a.Name()
		state, now := deniedStates[name], time.Now()
		var value []byte
		for i := range state.admissions {
			at := now.Add(state.last - time.Duration(state.admissions-i)*time.Millisecond)
			demand.At = at.UnixMicro()
			value, _, _ = driver.Demand{Key: key, Algorithm: a, N: state.units,
				Op: driver.OpForce}.Step(value, demand.At)
		}
		var err error
		switch {
		case state.value == "list":
			err = d.admin.RPush(t.Context(), stored, "x").Err()
		case state.value != "":
			err = d.admin.Set(t.Context(), stored, state.value, time.Hour).Err()
		case len(value) > 0:
			err = d.admin.Set(t.Context(), stored, value, time.Hour).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
		c.ds, c.keys = append(c.ds, demand), append(c.keys, stored)
	}
	return c
}

// prepareHeld returns a call whose keys have a hold, of ID 7, and a record.
func (d *denial) prepareHeld(
	t *testing.T, prefix string, a algorithm.Held, op driver.Op, frame string,
) *deniedCall {
	t.Helper()
	c := &deniedCall{what: fmt.Sprintf("%s, %v, frame %s", a.Name(), op, frame)}
	demands := 1
	switch frame {
	case "group":
		demands = 2
	case "single":
		c.times = 1
	}
	for range demands {
		demand := driver.Demand{Key: servers.FreshKey(t), Algorithm: a, N: 2, Op: op}
		stored := prefix + "{=" + demand.Key + "}:" + a.Limit().Name + ":" + a.Name()
		now := time.Now().UnixMicro() // the server may have no TIME
		before := demand
		before.Op, before.N, before.ID = driver.OpHold, 1, 7
		if _, err := decideHeld(t, d.admin, now, []string{stored}, before); err != nil {
			t.Fatal(err)
		}
		if !a.InFlight() {
			before.Op, before.ID = driver.OpTake, 0
			if _, err := decideHeld(t, d.admin, now, []string{stored}, before); err != nil {
				t.Fatal(err)
			}
		}
		if op > driver.OpReset {
			demand.ID = 7
		}
		c.ds, c.keys = append(c.ds, demand), append(c.keys, stored, stored+":h")
	}
	return c
}

// observe reads, for each call, the values of its keys and when they expire.
func (d *denial) observe(t *testing.T, calls []*deniedCall, f func(*deniedCall, []string)) {
	t.Helper()
	pipe := d.admin.Pipeline()
	var dumps [][]*redis.StringCmd
	var expiries [][]*redis.DurationCmd
	for _, c := range calls {
		var dump []*redis.StringCmd
		var expiry []*redis.DurationCmd
		for _, key := range c.keys {
			dump = append(dump, pipe.Dump(t.Context(), key))
			expiry = append(expiry, pipe.PExpireTime(t.Context(), key))
		}
		dumps, expiries = append(dumps, dump), append(expiries, expiry)
	}
	if _, err := pipe.Exec(t.Context()); err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	for i, c := range calls {
		var values []string
		for j := range dumps[i] {
			values = append(values, fmt.Sprint(dumps[i][j].Val(), expiries[i][j].Val()))
		}
		f(c, values)
	}
}

// wantBoth checks that calls of both kinds have failed.
func (d *denial) wantBoth(t *testing.T) {
	t.Helper()
	if d.plain == 0 || d.unknown == 0 {
		t.Errorf("%d calls failed and changed nothing, %d after a write; want some of each",
			d.plain, d.unknown)
	}
}
