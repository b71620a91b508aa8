package scripts

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// faulty is an algorithm whose script or Args fails in a certain way. In memory it is the log.
type faulty struct {
	algorithm.Log
	how string
}

// peeksThen returns the source of a step that answers a peek and runs the code then for any other
// operation.
func peeksThen(then string) string {
	return "local function step(key, tail, now, op)\n" +
		"if op == 1 then return 1, 1, 0, 0, now end\n" + then + " end"
}

// faultyScripts define the step of a faulty algorithm. Those of peeksThen fail for a take and not
// for a peek; the others always fail. wrote is set if one has written something before it fails.
var faultyScripts = map[string]struct {
	source string
	wrote  bool
}{
	"raises":             {source: peeksThen("error('planted')")},
	"calls what is none": {source: peeksThen("redis.call('NOSUCH', key)")},
	"returns no numbers": {source: peeksThen("return 1, 'many', {}, 0, now")},
	"writes no string":   {source: peeksThen("return 1, 1, 0, 0, now, 1e9, {}")},
	"fails after a write": {
		source: peeksThen("return 1, 1, 0, 0, now, 1e9, 'x', -1, 'y'"),
		wrote:  true,
	},
	"fails to patch": {
		source: "local function step(key, tail, now, op)\n" +
			"return 1, 1, 0, 0, now, nil, nil, -1, 'y' end",
	},
	"does not compile":   {source: "local function step( syntax error"},
	"fails when defined": {source: "error('planted')\nlocal function step() end"},
	"defines no step":    {source: "local stride = 1"},
	"panics in Args":     {source: "local function step() end"},
}

func (a faulty) Name() string { return "faulty-" + strings.ReplaceAll(a.how, " ", "-") }

func (a faulty) Script() driver.Script {
	return driver.Script{Name: a.Name(), Source: faultyScripts[a.how].source,
		Args: func(dst []int64, _ driver.Demand) []int64 {
			if a.how == "panics in Args" {
				panic("planted")
			}
			return dst
		}}
}

// TestStepFails: when callers of a faulty algorithm share a store with others, whose demands are in
// the same batches, only their own calls fail.
func TestStepFails(t *testing.T) {
	t.Parallel()
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		clients.EachOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			if !depth.Full && lib.Name != "go-redis" && tgt.Image != servers.Newest() {
				return
			}
			s := lib.Client(t, clients.To(tgt)).
				NewStore(t, &serverstore.Options{Timeout: clients.Patient,
					Prefix: servers.UniquePrefix(), Tag: func(string) string { return "t" }})
			for how, fault := range faultyScripts {
				t.Run(how, func(t *testing.T) { stepFails(t, s, how, fault.wrote) })
			}
		})
	})
}

func stepFails(t *testing.T, s driver.Store, how string, wrote bool) {
	const callers, each = 16, 10
	bad := driver.Demand{Key: "secret", Algorithm: faulty{threeADay, how}, N: 1}
	good, pair := clients.Take(servers.FreshKey(t)),
		[]driver.Demand{clients.Take(servers.FreshKey(t)), clients.Take(servers.FreshKey(t))}
	pair[1].Algorithm = NewQuota(driver.PerHour("hour", 1000)) // also not of this module
	check := func(err error) error {
		switch unknown := errors.Is(err, driver.ErrOutcomeUnknown); {
		case !errors.Is(err, driver.ErrUnavailable):
			return fmt.Errorf("want ErrUnavailable for the faulty demand, got: %w", err)
		case wrote != unknown:
			return fmt.Errorf("want ErrOutcomeUnknown: %t, got: %w", wrote, err)
		case strings.Contains(err.Error(), "secret"):
			return fmt.Errorf("the error contains the key: %w", err)
		}
		return nil
	}
	var others, panics atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for range each {
				var err error
				switch i % 4 {
				case 0:
					if _, err = s.Take(t.Context(), good); err == nil {
						others.Add(1)
					}
				case 1:
					if err = s.TakeAll(t.Context(), pair, make([]driver.Result, 2)); err == nil {
						others.Add(1)
					}
				case 2:
					err = caught(&panics, func() error {
						_, err := s.Take(t.Context(), bad)
						return check(err)
					})
				case 3:
					err = caught(&panics, func() error {
						return check(s.TakeAll(t.Context(),
							[]driver.Demand{bad, clients.Take(servers.FreshKey(t))},
							make([]driver.Result, 2)))
					})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := others.Load(); n != callers/2*each {
		t.Errorf("%d demands of others were decided, want %d", n, callers/2*each)
	}
	for _, d := range append(pair, good) {
		look := d
		look.Op = driver.OpPeek
		if res := clients.Ask(t, s, look); res.Limit.Max-res.Remaining != callers/4*each {
			t.Errorf("%d units recorded, want %d", res.Limit.Max-res.Remaining, callers/4*each)
		}
	}
	if want := how == "panics in Args"; (panics.Load() == callers/2*each) != want ||
		!want && panics.Load() > 0 {
		t.Errorf("got %d panics, want one for each faulty call: %t", panics.Load(), want)
	}
}

// TestGroupFailsAfterWrite: the failure of a group's second demand counts as one after a write if
// the first demand has written.
func TestGroupFailsAfterWrite(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		bad := driver.Demand{Key: "k", Algorithm: faulty{threeADay, "fails to patch"}, N: 1}
		good := driver.Demand{Key: "k", Algorithm: threeADay, N: 1}
		var call lua.Run
		call.Begin(0)
		first := "{" + servers.FreshKey(t) + "}"
		if err := call.Add([]string{first, first + "second"},
			[]driver.Demand{good, bad}); err != nil {
			t.Fatal(err)
		}
		err := call.Results(runCall(t, tgt.Client(t), &call), 0, make([]driver.Result, 2))
		if failed := (*lua.StepError)(nil); !errors.As(err, &failed) || !failed.Wrote {
			t.Errorf("got %v, want a failure after a write", err)
		}
	})
}

// caught counts the panics of f that were planted.
func caught(panics *atomic.Int64, f func() error) error {
	defer func() {
		if recover() == "planted" {
			panics.Add(1)
		}
	}()
	return f()
}

// uncomparable is an algorithm whose values cannot be compared with ==. A store that batches
// compares the demands of different callers.
type uncomparable struct {
	faulty
	_ []int
}

// TestUncomparableAlgorithm: only the calls with such an algorithm panic.
func TestUncomparableAlgorithm(t *testing.T) {
	t.Parallel()
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		clients.EachOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			s := lib.Client(t, clients.To(tgt)).NewStore(t,
				&serverstore.Options{Timeout: clients.Patient, Prefix: servers.UniquePrefix()})
			good := clients.Take(servers.FreshKey(t))
			bad := driver.Demand{Key: good.Key,
				Algorithm: uncomparable{faulty: faulty{threeADay, "raises"}}, N: 1}
			var panics atomic.Int64
			var wg sync.WaitGroup
			for i := range 32 {
				wg.Go(func() {
					for range 10 {
						if i%2 == 0 {
							clients.Ask(t, s, good)
						} else if !panicked(func() { _, _ = s.Take(t.Context(), bad) }) {
							t.Error("the demand was decided, want a panic")
						} else {
							panics.Add(1)
						}
					}
				})
			}
			wg.Wait()
			if n := clients.Recorded(t, s, good.Key); n != 160 || panics.Load() != 160 {
				t.Errorf("%d units recorded and %d panics, want 160 each", n, panics.Load())
			}
		})
	})
}

func panicked(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

// TestStepFailsInOrder: in a call with faulty and other demands, each group gets its own result.
func TestStepFailsInOrder(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		prefix := "{" + servers.UniquePrefix() + "}"
		log := driver.Demand{Key: "k", Algorithm: threeADay, N: 1}
		bad := func(how string) driver.Demand {
			return driver.Demand{Key: "k", Algorithm: faulty{threeADay, how}, N: 1}
		}
		var call lua.Run
		call.Begin(time.Now().UnixMicro())
		add := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		add(call.AddSame(prefix+"a", log, 2))
		add(call.Add([]string{prefix + "x"}, []driver.Demand{bad("raises")}))
		add(call.Add([]string{prefix + "a", prefix + "y"}, []driver.Demand{log, bad("raises")}))
		add(call.Add([]string{prefix + "a", prefix + "y"},
			[]driver.Demand{log, bad("fails after a write")}))
		add(call.AddSame(prefix+"z", summing{bad("raises")}.demand(), 7))
		add(call.Add([]string{prefix + "a"}, []driver.Demand{log}))
		reply := runCall(t, client, &call)
		want := []struct {
			out []driver.Result
			err error
		}{
			{make([]driver.Result, 2), nil},
			{make([]driver.Result, 1), driver.ErrUnavailable},
			{make([]driver.Result, 2), driver.ErrUnavailable},
			{make([]driver.Result, 2), driver.ErrOutcomeUnknown},
			{make([]driver.Result, 7), driver.ErrUnavailable},
			{make([]driver.Result, 1), nil},
		}
		for i, w := range want {
			err := call.Results(reply, i, w.out)
			if !errors.Is(err, w.err) || w.err == nil && err != nil ||
				errors.Is(err,
					driver.ErrOutcomeUnknown) != (w.err == driver.ErrOutcomeUnknown) {
				t.Errorf("group %d: got %v, want %v", i, err, w.err)
			}
			for _, res := range w.out {
				if (res.Limit.Max == 0) != (w.err != nil) {
					t.Errorf("group %d: got %+v beside the error %v", i, res, err)
				}
			}
		}
		if last := want[5].out[0]; last.Allowed {
			t.Errorf("got %+v, want a refusal: two takes and the group that failed after a write "+
				"used up three units", last)
		}
	})
}

// summing is a demand whose script has Sums set.
type summing struct{ driver.Demand }

func (s summing) demand() driver.Demand {
	s.Algorithm = summed{s.Algorithm.(faulty)}
	return s.Demand
}

type summed struct{ faulty }

func (s summed) Script() driver.Script {
	script := s.faulty.Script()
	script.Sums = true
	return script
}

// TestServerRefusesToWrite: if the server refuses to write, the whole call fails with the server's
// error, so that the client library can react to it.
func TestServerRefusesToWrite(t *testing.T) {
	servers.EachImage(t, func(t *testing.T, image string) {
		server := servers.Start(t, image)
		client := servers.Connect(t, server.Addr)
		var call lua.Run
		call.Begin(0)
		for i := range 3 {
			if err := call.Add([]string{fmt.Sprint("k", i)},
				[]driver.Demand{clients.Take("k")}); err != nil {
				t.Fatal(err)
			}
		}
		for what, refuse := range map[string][2][]any{
			"OOM": {{"config", "set", "maxmemory", "1"},
				{"config", "set", "maxmemory", "0"}},
			"READONLY": {{"replicaof", "127.0.0.1", "1"}, {"replicaof", "no", "one"}},
			"NOREPLICAS": {{"config", "set", "min-replicas-to-write", "1"},
				{"config", "set", "min-replicas-to-write", "0"}},
		} {
			if err := client.Do(t.Context(), refuse[0]...).Err(); err != nil {
				t.Fatal(err)
			}
			err := client.Eval(t.Context(), call.Program().Source, call.Keys(),
				argsOf(&call)...).Err()
			if err == nil || !strings.HasPrefix(err.Error(), what+" ") {
				t.Errorf("got %v, want %s", err, what)
			}
			if err := client.Do(t.Context(), refuse[1]...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if n := client.DBSize(t.Context()).Val(); n != 0 {
			t.Errorf("%d keys were written, want none", n)
		}
	})
}
