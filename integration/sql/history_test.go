package sql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	sqlstore "github.com/truewindow/ratelimit/backend/sql"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/conformance/linear"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/faultproxy"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/storeclock"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// callerVariable makes the test binary a process that calls a store: it holds a caller.
const callerVariable = "RATELIMIT_SQL_CALLER"

// A caller is a process whose clients call a store of its own in rounds.
type caller struct {
	Number               int
	Kind, Address, Table string
}

const (
	callers        = 3
	clientsOfOne   = 3
	callsOfAClient = 10 // at most

	// roundTime bounds a round in which a server that is busy decides little.
	roundTime = time.Second
)

// A round begins when a caller gets it. The caller answers with its calls.
type round struct {
	Number int
	Seed   uint64
	Began  time.Duration
}

// A call is an operation whose demands are sent as numbers, since they have an algorithm. Calls
// that are known to have recorded nothing have failed.
type call struct {
	conformance.Operation
	Key    string
	Units  []int64 // under each of the limits; 0 is no demand
	Failed bool
}

var limitsOfCalls = []driver.Algorithm{
	algorithm.SlidingLog(driver.Limit{Name: "few", Max: 20, Window: 333 * time.Millisecond}),
	algorithm.SlidingLog(driver.Limit{Name: "many", Max: 45, Window: time.Second}),
}

func (c call) demands() (ds []driver.Demand) {
	for i, n := range c.Units {
		if n > 0 {
			ds = append(ds, driver.Demand{Key: c.Key, N: n, Algorithm: limitsOfCalls[i]})
		}
	}
	return ds
}

// run runs in the process.
func (c caller) run() error {
	k := kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == c.Kind })]
	s, err := k.storeAt(c.Address, &sqlstore.Options{Table: c.Table, Timeout: time.Second,
		Transactions: 2})
	if err != nil {
		return err
	}
	commands, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	if err := answers.Encode(true); err != nil {
		return err
	}
	for {
		var r round
		if err := commands.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var mu sync.Mutex
		var calls []call
		var wg sync.WaitGroup
		for i := range clientsOfOne {
			client := c.Number*clientsOfOne + i
			random := rand.New(rand.NewPCG(r.Seed, uint64(client)))
			wg.Go(func() {
				for range callsOfAClient {
					if servers.SharedClock()-r.Began > roundTime {
						break
					}
					made := r.call(s, client, random)
					mu.Lock()
					calls = append(calls, made)
					mu.Unlock()
					time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		if err := answers.Encode(calls); err != nil {
			return err
		}
	}
}

// call makes a random call and records it.
func (r round) call(s driver.Store, client int, random *rand.Rand) call {
	c := call{Key: fmt.Sprintf("key%d-%d", r.Number, random.IntN(2))}
	for i := range limitsOfCalls {
		n := 1 + random.Int64N(2)
		if random.IntN(3) == 0 && (i == 0 || c.Units[0] > 0) {
			n = 0
		}
		c.Units = append(c.Units, n)
	}
	ds := c.demands()
	results := make([]driver.Result, len(ds)+1)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	c.Client, c.Call = client, servers.SharedClock()-r.Began
	err := s.TakeAll(ctx, append(ds, storeclock.Show(c.Key)), results)
	c.Return = servers.SharedClock() - r.Began
	switch {
	case err == nil:
		c.Results = results[:len(ds)]
		c.Now = storeclock.Of(results[len(ds)], time.Now().UnixMicro())
	case !errors.Is(err, driver.ErrOutcomeUnknown):
		c.Failed = true
	}
	return c
}

// startCallers starts processes that stop ends.
func (db *database) startCallers(t *testing.T) (processes []*servers.Process, stop func()) {
	t.Helper()
	address := db.direct
	if db.proxy != nil {
		address = db.proxy.Addr()
	}
	for i := range callers {
		processes = append(processes, servers.StartProcess(t, callerVariable,
			caller{i, db.name, address, db.table("ratelimit_states")}))
	}
	return processes, func() {
		for _, p := range processes {
			p.Stdin.Close()
			if err := p.Cmd.Wait(); err != nil { // after a data race too
				t.Error(err)
			}
		}
	}
}

// TestHistories: what several processes get of a database is linearizable, while connections break
// in every phase of a transaction and the database stands still. What has no answer is counted once
// or not at all.
func TestHistories(t *testing.T) {
	rounds := 6
	if depth.Full {
		rounds = 100
	}
	each(t, func(t *testing.T, k kind) {
		db := k.newDatabase(t)
		db.newStore(t, nil) // which makes the table
		processes, stop := db.startCallers(t)
		defer stop()
		var all, unknown, failed, undecided, number int
		// On a busy machine few calls of a round are decided, so there are more rounds.
		for ; number < rounds || all < 50*rounds && number < 4*rounds; number++ {
			var history []conformance.Operation
			for _, c := range db.play(t, processes, number) {
				if c.Failed {
					failed++
					continue
				} else if c.Results == nil {
					unknown++
				}
				c.Demands = c.demands()
				history = append(history, c.Operation)
			}
			all += len(history)
			if err := linear.CheckRunning(history, linear.Steady); errors.Is(err,
				linear.ErrUndecided) {
				undecided++
				t.Logf("%d calls: %v", len(history), err)
			} else if err != nil {
				t.Errorf("%d calls: %v", len(history), err)
			}
		}
		t.Logf("%d calls in %d rounds, %d of unknown outcome, %d others failed", all, number,
			unknown, failed)
		if db.proxy != nil && unknown == 0 {
			t.Error("no outcome was unknown: this test proves little")
		}
		if undecided > number/2 {
			t.Errorf("%d of %d histories are undecided: this test proves little", undecided, number)
		}
	})
}

// play returns what the callers did in a round.
func (db *database) play(t *testing.T, processes []*servers.Process, number int) (all []call) {
	t.Helper()
	r := round{number, rand.Uint64(), servers.SharedClock()}
	defer db.breakSometimes(t, r.Seed)()
	for _, p := range processes {
		if err := p.Commands.Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range processes {
		var calls []call
		if err := p.Answers.Decode(&calls); err != nil {
			t.Fatal(err)
		}
		all = append(all, calls...)
	}
	return all
}

// breakSometimes lets connections fail at random until the returned function is called.
func (db *database) breakSometimes(t *testing.T, seed uint64) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	r := rand.New(rand.NewPCG(seed, 1))
	commits := 1 // to break; to find an order of many calls of unknown outcome takes too long
	go func() {
		defer close(done)
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Duration(10+r.IntN(40)) * time.Millisecond):
			}
			if err := db.breakOnce(r, &commits); err != nil {
				t.Error(err)
			}
		}
	}()
	return func() {
		close(over)
		<-done
		if db.proxy != nil {
			db.proxy.Heal()
		}
	}
}

func (db *database) breakOnce(r *rand.Rand, commits *int) error {
	if db.proxy == nil { // another program locks the file
		thaw, err := db.freeze()
		if err != nil {
			return err
		}
		time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
		return thaw()
	}
	commit, phases := "COMMIT\x00", []string{"BEGIN", "SELECT stored_key", "INSERT", "ROLLBACK"}
	switch {
	case db.driver == pipelined: // BEGIN to SELECT and INSERT to COMMIT are sent together
		commit = boundOf("COMMIT")
		phases = []string{boundOf("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"), "ROLLBACK"}
	case db.dialect == sqlstore.MySQL:
		commit, phases = "INSERT", []string{"GET_LOCK", "SELECT stored_key", "RELEASE_LOCK"}
	}
	phase := phases[r.IntN(len(phases))]
	switch n := r.IntN(7); {
	case n < 3 && *commits > 0:
		*commits--
		phase = commit
		fallthrough
	case n < 4:
		db.proxy.Set(faultproxy.Fault{Kind: faultproxy.CutAfter, Holding: phase, Times: 1})
	case n == 4:
		db.proxy.Set(faultproxy.Fault{Kind: faultproxy.CutBefore, Holding: phase, Times: 1})
	case n == 5:
		db.proxy.Set(faultproxy.Fault{Kind: faultproxy.Delay, Holding: phase, Times: 1,
			Pause: time.Duration(r.IntN(50)) * time.Millisecond})
	default:
		db.proxy.Set(faultproxy.Fault{Kind: faultproxy.Freeze})
		time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
		db.proxy.Heal()
	}
	return nil
}
