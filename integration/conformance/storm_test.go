package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// A storm is far more demand on one key than its limit admits: two clients run stormWorkers
// goroutines each, which take one unit stormTakes times. One client alone exhausts the limit.
const (
	stormWorkers = 64
	stormTakes   = 20
	stormMax     = 1000
)

// stormResult is the sum of a storm's answers.
type stormResult struct {
	Admitted, Errors int64
	Err              string // one of the errors
}

func (r stormResult) String() string {
	return fmt.Sprintf("%d of %d, %d errors", r.Admitted, stormMax, r.Errors)
}

func (r stormResult) add(o stormResult) stormResult {
	r.Admitted += o.Admitted
	r.Errors += o.Errors
	if r.Err == "" {
		r.Err = o.Err
	}
	return r
}

func (r stormResult) check(t *testing.T) {
	t.Helper()
	if r.Admitted != stormMax || r.Errors != 0 {
		t.Errorf("admitted %d, want %d; got %d errors, want none: %s",
			r.Admitted, stormMax, r.Errors, r.Err)
	}
}

// storm is the part of one client. It begins when start is closed.
func storm(ctx context.Context, store driver.Store, start <-chan struct{}) stormResult {
	var admitted, failed atomic.Int64
	var cause atomic.Value
	var wg sync.WaitGroup
	for range stormWorkers {
		wg.Go(func() {
			d := driver.Demand{Key: "storm",
				Algorithm: algorithm.SlidingLog(driver.PerHour("hour", stormMax)), N: 1}
			<-start
			for range stormTakes {
				res, err := store.Take(ctx, d)
				switch {
				case err != nil:
					failed.Add(1)
					cause.Store(err.Error())
				case res.Allowed:
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	text, _ := cause.Load().(string)
	return stormResult{admitted.Load(), failed.Load(), text}
}

func stormGoroutines(t *testing.T, open opener) stormResult {
	start := make(chan struct{})
	results := make([]stormResult, 2)
	var wg sync.WaitGroup
	for i := range results {
		store := open(t, nil)
		wg.Go(func() { results[i] = storm(t.Context(), store, start) })
	}
	close(start)
	wg.Wait()
	sum := results[0].add(results[1])
	sum.check(t)
	return sum
}

// stormEnv makes the test binary a process of a storm: it holds a stormTask.
const stormEnv = "RATELIMIT_TEST_STORM"

type stormTask struct {
	Cluster bool
	Addrs   []string
	Prefix  string
}

// stormProcesses starts two processes and has them begin at the same time.
func stormProcesses(t *testing.T, tgt *servers.Target) stormResult {
	task := stormTask{tgt.Cluster, tgt.Addrs, servers.UniquePrefix()}
	processes := []*servers.Process{servers.StartProcess(t, stormEnv, task),
		servers.StartProcess(t, stormEnv, task)}
	for _, p := range processes {
		if err := p.Commands.Encode(true); err != nil {
			t.Fatal(err)
		}
	}
	var sum stormResult
	for _, p := range processes {
		var r stormResult
		if err := p.Answers.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if err := p.Cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		sum = sum.add(r)
	}
	sum.check(t)
	return sum
}

// stormProcess runs in the process. It returns the exit code.
func stormProcess(env string) int {
	err := func() error {
		var task stormTask
		if err := json.Unmarshal([]byte(env), &task); err != nil {
			return err
		}
		tgt := &servers.Target{Cluster: task.Cluster, Addrs: task.Addrs}
		client := tgt.Open()
		defer client.Close()
		store, err := redisstore.New(client,
			&serverstore.Options{Prefix: task.Prefix, Timeout: clients.Patient})
		if err != nil {
			return err
		}
		commands, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
		if err := answers.Encode(true); err != nil {
			return err
		}
		var begin bool
		if err := commands.Decode(&begin); err != nil {
			return err
		}
		start := make(chan struct{})
		close(start)
		return answers.Encode(storm(context.Background(), store, start))
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
