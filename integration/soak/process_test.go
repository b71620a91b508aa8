package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// soakClock reads a clock that all processes share and that never steps.
func soakClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

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
	Key   string
	Kind  soakKind
	Limit ratelimit.Limit
	Op    driver.Op
	N     int64
	ID    uint64
}

func (d soakDemand) state() soakState { return soakState{d.Key, d.Limit.Name} }

func (d soakDemand) demand() driver.Demand {
	return driver.Demand{Key: d.Key, Algorithm: algorithmOf(d.Kind, d.Limit), Op: d.Op, N: d.N,
		ID: d.ID}
}

// soakCommand begins a round, or ends it if Round is nil.
type soakCommand struct{ Round *soakRound }

// A soakProcess is the test's handle of a process.
type soakProcess struct {
	*servers.Process
	task soakTask
}

// startSoakProcess starts a process that ends with the test at the latest.
func startSoakProcess(t testing.TB, task soakTask) *soakProcess {
	t.Helper()
	p := &soakProcess{servers.StartProcess(t, soakEnv, task), task}
	t.Cleanup(func() { p.end(t) })
	return p
}

// end closes the process's input, which makes it exit, and waits for it.
func (p *soakProcess) end(t testing.TB) {
	p.Stdin.Close()
	if err := p.Cmd.Wait(); err != nil && t.Context().Err() == nil {
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
			var calls []soakCall
			var wg sync.WaitGroup
			wg.Go(func() { calls = task.work(store, *begin.Round, over) })
			err := commands.Decode(&end)
			close(over)
			wg.Wait()
			if err != nil {
				return err
			}
			if err := answers.Encode(calls); err != nil {
				return err
			}
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

// work does the process's part of a round.
func (task soakTask) work(
	store ratelimit.Store, round soakRound, over <-chan struct{},
) (calls []soakCall) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range soakWorkers {
		number := task.Number*soakWorkers + i
		wg.Go(func() {
			own := newSoakWorker(round, number).work(store, round, over)
			mu.Lock()
			defer mu.Unlock()
			for _, c := range own {
				c.Process, c.Worker = task.Number, number
				calls = append(calls, c)
			}
		})
	}
	wg.Wait()
	return calls
}

func (w *soakWorker) work(
	store ratelimit.Store, round soakRound, over <-chan struct{},
) (calls []soakCall) {
	timeout := soakTimeout
	if round.Clock {
		timeout = clients.Patient
	}
	for {
		group, ds := w.demands()
		c := decideForSoak(store, ds, timeout)
		c.Group = group
		calls = append(calls, c)
		w.learn(ds, c.Results)
		timer := time.NewTimer(w.pause(c.Err != ""))
		select {
		case <-over:
			timer.Stop()
			return calls
		case <-timer.C:
		}
	}
}

// decideForSoak makes a call and records it.
func decideForSoak(
	store ratelimit.Store, ds []driver.Demand, timeout time.Duration,
) (c soakCall) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for _, d := range ds {
		c.Demands = append(c.Demands,
			soakDemand{d.Key, kindOf(d.Algorithm), d.Algorithm.Limit(), d.Op, d.N, d.ID})
	}
	results := make([]ratelimit.Result, len(ds))
	var err error
	c.Call = soakClock()
	if len(ds) == 1 {
		results[0], err = store.Take(ctx, ds[0])
	} else {
		err = store.TakeAll(ctx, ds, results)
	}
	c.Return = soakClock()
	if c.Err, c.Text = classify(err); err == nil {
		c.Results = results
	}
	return c
}
