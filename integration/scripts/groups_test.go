package scripts

import (
	"fmt"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestGroups: a group is admitted as a whole or changes nothing, and the groups of a call are
// independent and see each other's changes.
func TestGroups(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		tag := fmt.Sprintf("{groups:%d}", time.Now().UnixNano())
		now := time.Now().UnixMicro()
		small := algorithm.SlidingLog(driver.PerMinute("minute", 2))
		large := algorithm.SlidingLog(driver.PerHour("hour", 10))
		take := func(a driver.Algorithm, n int64) driver.Demand {
			return driver.Demand{Key: "k", Algorithm: a, N: n}
		}
		var call lua.Run
		call.Begin(now)
		groups := [][]driver.Demand{
			{take(small, 1), take(large, 3)}, // admitted
			{take(small, 2), take(large, 1)}, // refused by small
			{take(large, 7)},                 // admitted: the refused group took nothing
			{take(small, 1)},                 // admitted
			// refused by large
			{take(large, 1), {Key: "k", Algorithm: small, Op: driver.OpForce, N: 5}},
		}
		for _, g := range groups {
			keys := make([]string, len(g))
			for i, d := range g {
				keys[i] = tag + d.Algorithm.Limit().Name
			}
			if err := call.Add(keys, g); err != nil {
				t.Fatal(err)
			}
		}
		if len(call.Keys()) != 2 {
			t.Errorf("got %d keys, want each state once", len(call.Keys()))
		}
		reply := runCall(t, client, &call)
		for i, want := range [][]struct {
			allowed   bool
			remaining int64
		}{
			{{true, 1}, {true, 7}},
			{{false, 1}, {true, 7}},
			{{true, 0}},
			{{true, 0}},
			{{false, 0}, {true, 0}},
		} {
			out := make([]driver.Result, len(want))
			if err := call.Results(reply, i, out); err != nil {
				t.Fatal(err)
			}
			for j, w := range want {
				if out[j].Allowed != w.allowed || out[j].Remaining != w.remaining {
					t.Errorf("group %d, demand %d: got %+v, want %+v", i, j, out[j], w)
				}
			}
		}
		for _, d := range groups[0] {
			if ttl := client.PTTL(t.Context(), tag+d.Algorithm.Limit().Name).
				Val(); ttl < d.Algorithm.Limit().Window-time.Minute/2 {
				t.Errorf("%v expires in %v, want its window", d.Algorithm.Limit(), ttl)
			}
		}
	})
}

// unsummed is the log with a script that does not have Sums set.
type unsummed struct{ algorithm.Log }

func (u unsummed) Script() driver.Script {
	script := u.Log.Script()
	args := script.Args
	script.Name, script.Sums = "unsummed", false
	script.Args = func(dst []int64, d driver.Demand) []int64 {
		d.Algorithm = d.Algorithm.(unsummed).Log
		return args(dst, d)
	}
	return script
}
