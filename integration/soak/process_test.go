package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// soakEnv makes the test binary a process of a soak: it holds a soakTask.
const soakEnv = "RATELIMIT_TEST_SOAK"

type soakTask struct {
	Number  int
	Library string
	Cached  bool
	Addr    string
	Plant   string // name of a bug; may be empty
	Killed  bool   // it is killed, so it reports each call before it makes it, and after
}

func (task soakTask) name() string {
	if task.Cached {
		return task.Library + ", cached"
	}
	return task.Library
}

const (
	soakWorkers = 3 // per process
	soakPrefix  = "soak:"
	soakTimeout = 200 * time.Millisecond
)

// A soakCall is one call as a process recorded it.
type soakCall struct {
	Process, Worker, Group int
	Call, Return           time.Duration
	Demands                []soakDemand
	Results                []ratelimit.Result // nil after an error
	Err                    soakError
	Text                   string // of an unexpected error
}

type soakError string

const (
	soakUnavailable soakError = "unavailable"
	soakUnknown     soakError = "outcome unknown"
	soakUnexpected  soakError = "unexpected"
)

func classify(err error) (class soakError, text string) {
	switch {
	case err == nil:
		return "", ""
	case errors.Is(err, driver.ErrCorruptState), !errors.Is(err, ratelimit.ErrUnavailable):
		return soakUnexpected, err.Error()
	case errors.Is(err, ratelimit.ErrOutcomeUnknown):
		return soakUnknown, ""
	}
	return soakUnavailable, ""
}

// soakDemand is a demand as JSON.
type soakDemand struct {
	Key     string
	Kind    soakKind
	Limit   ratelimit.Limit
	Timeout time.Duration // of holds
	Op      driver.Op
	N       int64
	ID      uint64
}

func (d soakDemand) state() soakState { return soakState{d.Key, d.Limit.Name} }

func (d soakDemand) demand() driver.Demand {
	return driver.Demand{Key: d.Key, Algorithm: algorithmOf(d.Kind, d.Limit, d.Timeout), Op: d.Op,
		N: d.N, ID: d.ID}
}

// soakCommand begins a round, or ends it if Round is nil.
type soakCommand struct{ Round *soakRound }

// soakAnswer reports calls, the beginning of one, or the end of a round.
type soakAnswer struct {
	Begun *soakCall
	Calls []soakCall
	Over  bool
}

// A soakProcess is the test's handle of a process.
type soakProcess struct {
	*servers.Process
	task   soakTask
	killed atomic.Bool
}

// startSoakProcess starts a process that ends with the test at the latest.
func startSoakProcess(t testing.TB, task soakTask) *soakProcess {
	t.Helper()
	p := &soakProcess{Process: servers.StartProcess(t, soakEnv, task), task: task}
	t.Cleanup(func() { p.end(t) })
	return p
}

// read returns the calls of a round. A process that is killed has made the calls that it had begun
// with an unknown outcome.
func (p *soakProcess) read() (calls []soakCall, err error) {
	begun := make(map[int]soakCall) // by worker
	for {
		var a soakAnswer
		if err := p.Answers.Decode(&a); err != nil {
			if !p.killed.Load() {
				return nil, fmt.Errorf("%s: %w", p.task.name(), err)
			}
			for _, c := range begun {
				c.Err = soakUnknown
				calls = append(calls, c)
			}
			return calls, nil
		}
		if a.Begun != nil {
			begun[a.Begun.Worker] = *a.Begun
		}
		for _, c := range a.Calls {
			delete(begun, c.Worker)
		}
		if calls = append(calls, a.Calls...); a.Over {
			return calls, nil
		}
	}
}

// kill ends the process at once.
func (p *soakProcess) kill(t testing.TB) {
	t.Helper()
	p.killed.Store(true)
	if err := p.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// end closes the process's input, which makes it exit, and waits for it.
func (p *soakProcess) end(t testing.TB) {
	p.Stdin.Close()
	if err := p.Cmd.Wait(); err != nil && !p.killed.Load() && t.Context().Err() == nil {
		t.Errorf("process %s: %v", p.task.name(), err)
	}
}

// runSoakProcess runs in the process. It returns the exit code.
func runSoakProcess(env string) int {
	err := func() error {
		var task soakTask
		if err := json.Unmarshal([]byte(env), &task); err != nil {
			return err
		}
		store, stop, err := task.open()
		if err != nil {
			return err
		}
		defer stop()
		commands, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
		if err := answers.Encode(true); err != nil {
			return err
		}
		for {
			var begin, end soakCommand
			if err := commands.Decode(&begin); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			over := make(chan struct{})
			var mu sync.Mutex
			report := func(a soakAnswer) {
				mu.Lock()
				defer mu.Unlock()
				if err := answers.Encode(a); err != nil {
					panic(err)
				}
			}
			var calls []soakCall
			var wg sync.WaitGroup
			wg.Go(func() { calls = task.work(store, *begin.Round, over, report) })
			err := commands.Decode(&end)
			close(over)
			wg.Wait()
			if err != nil {
				return err
			}
			report(soakAnswer{Calls: calls, Over: true})
		}
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (task soakTask) open() (store ratelimit.Store, stop func(), err error) {
	for _, lib := range clients.Libraries {
		if lib.Name != task.Library {
			continue
		}
		d, opts := clients.Dialing{Addrs: []string{task.Addr}},
			serverstore.Options{Prefix: soakPrefix, Timeout: clients.Patient}
		if task.Cached {
			s, err := lib.Caching(d)(&opts)
			if err != nil {
				return nil, nil, err
			}
			return task.plant(s), func() { s.Close() }, nil
		}
		client, err := lib.Open(d)
		if err != nil {
			return nil, nil, err
		}
		s, err := client.Store(&opts)
		return task.plant(s), client.Close, err
	}
	return nil, nil, fmt.Errorf("unknown library %q", task.Library)
}

// work does the process's part of a round. It returns the calls that it has not reported.
func (task soakTask) work(
	store ratelimit.Store, round soakRound, over <-chan struct{}, report func(soakAnswer),
) (calls []soakCall) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range soakWorkers {
		w := newSoakWorker(round, task.Number*soakWorkers+i)
		wg.Go(func() {
			begin := func(soakCall) {}
			end := func(c soakCall) {
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, c)
			}
			if task.Killed {
				begin = func(c soakCall) { report(soakAnswer{Begun: &c}) }
				end = func(c soakCall) { report(soakAnswer{Calls: []soakCall{c}}) }
			}
			w.work(store, over, func(c soakCall, do func(*soakCall)) soakCall {
				c.Process, c.Worker = task.Number, w.number
				begin(c)
				do(&c)
				end(c)
				return c
			})
		})
	}
	wg.Wait()
	return calls
}

// work makes calls until the round is over. Each call is made by call.
func (w *soakWorker) work(
	store ratelimit.Store, over <-chan struct{},
	call func(c soakCall, do func(*soakCall)) soakCall,
) {
	timeout := soakTimeout
	if w.round.Clock {
		timeout = clients.Patient
	}
	for {
		group, ds := w.demands()
		c := soakCall{Group: group, Call: servers.SharedClock(), Demands: soakDemands(ds)}
		c = call(c, func(c *soakCall) { c.decide(store, ds, timeout) })
		w.learn(ds, c.Results)
		timer := time.NewTimer(w.pause(c.Err != ""))
		select {
		case <-over:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

func soakDemands(ds []driver.Demand) (all []soakDemand) {
	for _, d := range ds {
		kind, timeout := kindOf(d.Algorithm)
		all = append(all,
			soakDemand{d.Key, kind, d.Algorithm.Limit(), timeout, d.Op, d.N, d.ID})
	}
	return all
}

// decide makes a call and records it.
func (c *soakCall) decide(store ratelimit.Store, ds []driver.Demand, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	results := make([]ratelimit.Result, len(ds))
	var err error
	c.Call = servers.SharedClock()
	if len(ds) == 1 {
		results[0], err = store.Take(ctx, ds[0])
	} else {
		err = store.TakeAll(ctx, ds, results)
	}
	c.Return = servers.SharedClock()
	if c.Err, c.Text = classify(err); err == nil {
		c.Results = results
	}
}
