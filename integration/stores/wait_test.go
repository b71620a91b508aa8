package stores

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
	"github.com/truewindow/ratelimit/internal/testkit/timed"
)

// waitEnv makes the test binary a process of TestWaiters: it holds the server's address.
const waitEnv = "RATELIMIT_TEST_WAIT"

// waitProcesses is how many processes wait for one key.
const waitProcesses = 2

// waitTask is the task of each process: its waiters call Wait repeatedly.
type waitTask struct {
	Key     string
	Limit   ratelimit.Limit
	Waiters int
	Times   int           // calls of Wait per waiter; 0 means that For bounds them
	For     time.Duration // duration of the run if Times is 0
	Leave   bool          // whether half of the waiters give up at random
}

// waitReport is the result of the waiters of a process, or of all.
type waitReport struct {
	Admitted []int   // by waiter; those that do not leave come first
	Stamps   []int64 // of the admissions, in microseconds
	Calls    int64   // calls of the store
	Refused  int     // waits given up after a refusal by the store
	Left     int     // all waits given up
	Err      string  // an unexpected error
}

// countingStore counts its calls.
type countingStore struct {
	ratelimit.Store
	calls atomic.Int64
}

func (s *countingStore) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	s.calls.Add(1)
	return s.Store.Take(ctx, d)
}

// waitProcess runs in a process of TestWaiters. It runs tasks until its input ends, and returns the
// exit code.
func waitProcess(env string) int {
	err := func() error {
		var addr string
		if err := json.Unmarshal([]byte(env), &addr); err != nil {
			return err
		}
		client := (&servers.Target{Addrs: []string{addr}}).Open()
		defer client.Close()
		store, err := redisstore.New(client, &serverstore.Options{Timeout: clients.Patient})
		if err != nil {
			return err
		}
		commands, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
		if err := answers.Encode(true); err != nil {
			return err
		}
		for {
			var task waitTask
			if err := commands.Decode(&task); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			report, err := task.run(store)
			if err != nil {
				return err
			}
			if err := answers.Encode(report); err != nil {
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

// run runs all waiters at once.
func (task waitTask) run(store ratelimit.Store) (all waitReport, err error) {
	counting := &countingStore{Store: store}
	limiter, err := ratelimit.New(counting, timed.Of(algorithm.SlidingLog(task.Limit)))
	if err != nil {
		return all, err
	}
	ctx := context.Background()
	if task.Times == 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, task.For)
		defer cancel()
	}
	reports := make([]waitReport, task.Waiters)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range reports {
		wg.Go(func() {
			<-start
			for n := 0; task.Times == 0 || n < task.Times; n++ {
				own, cancel := task.contextOf(ctx, i)
				reports[i].wait(own, limiter, task.Key)
				cancel()
				if ctx.Err() != nil || own == ctx && len(reports[i].Stamps) <= n {
					return
				}
			}
		})
	}
	close(start)
	wg.Wait()
	for _, r := range reports {
		all.add(r)
		all.Admitted = append(all.Admitted, len(r.Stamps))
	}
	all.Calls = counting.calls.Load()
	return all, nil
}

// leaves reports whether the i-th waiter gives up at random.
func (task waitTask) leaves(i int) bool { return task.Leave && i >= task.Waiters/2 }

// contextOf returns the context of a call of the i-th waiter in a run that ends with ctx.
func (task waitTask) contextOf(ctx context.Context, i int) (context.Context, context.CancelFunc) {
	if !task.leaves(i) {
		return ctx, func() {}
	}
	// a turn takes about as long as all waiters need for a unit each
	waiters := time.Duration(task.Waiters * waitProcesses)
	turn := waiters * task.Limit.Window / time.Duration(task.Limit.Max)
	patience := rand.N(turn)
	if i%2 == 0 {
		return context.WithTimeout(ctx, patience)
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(patience, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// wait makes one call.
func (r *waitReport) wait(ctx context.Context, limiter *ratelimit.Limiter, key string) {
	res, err := limiter.Wait(ctx, key)
	switch {
	case err == nil && res.Allowed:
		r.Stamps = append(r.Stamps, timed.Now(res, time.Now().UnixMicro()))
	case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
		r.Left++
		if res.Source == ratelimit.SourceStore && res.RetryAfter > 0 {
			r.Refused++
		}
	default:
		r.Err = fmt.Sprintf("%+v, %v", res, err)
	}
}

func (r *waitReport) add(o waitReport) {
	r.Stamps = append(r.Stamps, o.Stamps...)
	r.Calls += o.Calls
	r.Refused += o.Refused
	r.Left += o.Left
	r.Err = cmp.Or(r.Err, o.Err)
}

// most returns the largest number of stamps in any window (t-window, t].
func most(stamps []int64, window time.Duration) (most int) {
	slices.Sort(stamps)
	first := 0
	for i, t := range stamps {
		for stamps[first] <= t-window.Microseconds() {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// TestWaiters: goroutines of two processes wait for one key. Within a process they are admitted in
// order, so their counts hardly differ, and together they take exactly what the limit admits, with
// few calls of the store.
func TestWaiters(t *testing.T) {
	waiters, short, long := 100, time.Second, 3500*time.Millisecond
	if depth.Full {
		waiters, short, long = 200, 30*time.Second, 30*time.Second
	}
	// The first waiter may get its second turn before the last one has begun.
	const oneByOneSpread = 2
	// In a burst a busy machine may stop a waiter between two calls for several turns. In the long
	// form this evens out.
	inBursts := depth.Of(waiters, 1)
	const times = 5
	burst := ratelimit.PerHour("waits", int64(times*waiters*waitProcesses))
	hundred := ratelimit.PerSecond("waits", 100)
	oneByOne := ratelimit.Limit{Name: "waits", Max: 1, Window: 10 * time.Millisecond}
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		var processes []*servers.Process
		for range waitProcesses {
			p := servers.StartProcess(t, waitEnv, server.Addr)
			defer func() {
				p.Stdin.Close()
				if err := p.Cmd.Wait(); err != nil {
					t.Error(err)
				}
			}()
			processes = append(processes, p)
		}
		for _, tt := range []struct {
			name string
			task waitTask
			waitBounds
		}{
			{"burst", waitTask{Limit: burst, Times: times}, waitBounds{spread: 0, calls: 1.1}},
			{"a hundred a second", waitTask{Limit: hundred, For: long},
				waitBounds{spread: inBursts}},
			{"one by one", waitTask{Limit: oneByOne, For: short},
				waitBounds{spread: oneByOneSpread}},
			{"half leave", waitTask{Limit: hundred, For: long, Leave: true},
				waitBounds{spread: inBursts}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				tt.task.Key, tt.task.Waiters = servers.FreshKey(t), waiters
				runWaiters(t, processes, tt.task, tt.waitBounds)
			})
		}
	})
}

// waitBounds bound the results of a task.
type waitBounds struct {
	spread int // largest difference between the turns of two waiters
	// most calls of the store per admission; 0 means the bound for any pattern of freed units
	calls float64
}

// runWaiters runs task in each process and checks the bounds.
func runWaiters(t *testing.T, processes []*servers.Process, task waitTask, bounds waitBounds) {
	for _, p := range processes {
		if err := p.Commands.Encode(task); err != nil {
			t.Fatal(err)
		}
	}
	var all waitReport
	var spreads []string
	for i, p := range processes {
		var r waitReport
		if err := p.Answers.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if r.Err != "" {
			t.Errorf("process %d: got the error %s, want none", i, r.Err)
		}
		stay := r.Admitted
		if task.Leave {
			stay = stay[:task.Waiters/2]
		}
		least, most := slices.Min(stay), slices.Max(stay)
		if most > least+bounds.spread {
			t.Errorf("process %d: waiters had from %d to %d turns, want a spread of at most %d: %v",
				i, least, most, bounds.spread, r.Admitted)
		}
		spreads = append(spreads, strconv.Itoa(least)+" to "+strconv.Itoa(most))
		all.add(r)
	}

	admitted := len(all.Stamps)
	perAdmission := float64(all.Calls) / float64(admitted)
	inWindow := most(all.Stamps, task.Limit.Window)
	servers.Measured("%s: %d waiters in each of %d processes at %v: %d admitted, %v to each "+
		"waiter by process, %d waits given up, %.2f calls of the store for an admission, at most "+
		"%d admitted in a window",
		t.Name(), task.Waiters, waitProcesses, task.Limit, admitted, spreads, all.Left,
		perAdmission, inWindow)
	if inWindow > int(task.Limit.Max) {
		t.Errorf("%d admitted in a window, want at most %v", inWindow, task.Limit)
	}
	if all.Left == 0 && task.Leave {
		t.Error("no wait was given up: this test proves nothing")
	}
	if bounds.calls > 0 {
		if perAdmission > bounds.calls {
			t.Errorf("%.2f calls of the store per admission, want at most %.2f",
				perAdmission, bounds.calls)
		}
		return
	}
	// After a refusal a process sleeps until another unit becomes free, and each unit that becomes
	// free was admitted before. So between two admissions each process is refused at most once, and
	// once more if the first waiter gives up. The clocks of server and clients may run at slightly
	// different speeds, so a few calls come too early.
	bound := int64(admitted + waitProcesses*(admitted+1) + all.Refused + admitted/50)
	if all.Calls > bound {
		t.Errorf("%d calls of the store for %d admissions, want at most %d",
			all.Calls, admitted, bound)
	}
}
