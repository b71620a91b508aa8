package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/integration/servers"
)

// workerVariable has, in the environment of a process, the asynqWorker that it is.
const workerVariable = "RATELIMIT_JOBS_WORKER"

// An asynqWorker is a server of asynq that handles tasks until its input ends.
type asynqWorker struct {
	Addr     string
	Quota    ratelimit.Limit
	Running  int64
	TimeOut  time.Duration // of a running job that nobody renews
	Parallel int
}

// ran is the list of the jobs that have begun.
const ran = "ran"

// A run is an entry of ran.
type run struct {
	ID, Tenant string
	PID        int
	At         time.Time // by the server's clock
}

func (w asynqWorker) run() error {
	stop, err := w.start()
	if err != nil {
		return err
	}
	fmt.Println("true")
	_, err = io.Copy(io.Discard, os.Stdin)
	stop()
	return err
}

// start starts the server. Payloads are what tasks do.
func (w asynqWorker) start() (stop func(), err error) {
	client := redis.NewClient(&redis.Options{Addr: w.Addr})
	store, err := redisstore.New(client, &serverstore.Options{Timeout: servers.FaultTimeout})
	if err != nil {
		return nil, err
	}
	limits, err := NewLimits(store, w.Quota,
		algorithm.InFlight("running", w.Running).WithTimeout(w.TimeOut))
	if err != nil {
		return nil, err
	}
	config := AsynqConfig()
	config.Concurrency = w.Parallel
	config.TaskCheckInterval = 20 * time.Millisecond
	config.DelayedTaskCheckInterval = 50 * time.Millisecond
	config.LogLevel = asynq.FatalLevel
	mux := asynq.NewServeMux()
	mux.Use(limits.Asynq)
	mux.HandleFunc("job", func(ctx context.Context, t *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		now, err := client.Time(ctx).Result()
		if err != nil {
			return err
		}
		text, err := json.Marshal(run{id, t.Headers()["tenant"], os.Getpid(), now})
		if err != nil {
			return err
		}
		if err := client.RPush(ctx, ran, text).Err(); err != nil {
			return err
		}
		switch string(t.Payload()) {
		case "fail":
			return errors.New("failed")
		case "panic":
			panic("a job")
		case "hang":
			<-ctx.Done()
		}
		return nil
	})
	server := asynq.NewServerFromRedisClient(client, config)
	if err := server.Start(mux); err != nil {
		return nil, err
	}
	return func() {
		server.Shutdown()
		_ = store.Close()
		_ = client.Close()
	}, nil
}

// An asynqTest has a Redis server of its own.
type asynqTest struct {
	*testing.T
	addr      string
	redis     *redis.Client
	client    *asynq.Client
	inspector *asynq.Inspector
}

func newAsynqTest(t *testing.T) *asynqTest {
	t.Helper()
	addr := servers.Start(t, servers.Images()[0]).Addr
	c := servers.Connect(t, addr)
	return &asynqTest{t, addr, c, asynq.NewClientFromRedisClient(c),
		asynq.NewInspectorFromRedisClient(c)}
}

func (t *asynqTest) enqueue(tenant, queue, does string, n int, opts ...asynq.Option) {
	t.Helper()
	for range n {
		task := asynq.NewTaskWithHeaders("job", []byte(does), map[string]string{"tenant": tenant},
			append(opts, asynq.Queue(queue))...)
		if _, err := t.client.Enqueue(task); err != nil {
			t.Fatal(err)
		}
	}
}

// runs returns what has begun, of one tenant or of all.
func (t *asynqTest) runs(tenant string) (runs []run) {
	t.Helper()
	texts, err := t.redis.LRange(t.Context(), ran, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		var r run
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		if tenant == "" || r.Tenant == tenant {
			runs = append(runs, r)
		}
	}
	return runs
}

// await waits until no task is to be handled now.
func (t *asynqTest) await() {
	t.Helper()
	servers.Await(t, func() (bool, error) {
		queues, err := t.inspector.Queues()
		if err != nil {
			return false, err
		}
		for _, queue := range queues {
			info, err := t.inspector.GetQueueInfo(queue)
			if err != nil || info.Pending+info.Active > 0 {
				return false, err
			}
		}
		return true, nil
	})
}

// wantPutBack checks that n tasks of a queue are put back, and neither retried nor archived.
func (t *asynqTest) wantPutBack(queue string, n int, after, before time.Time) {
	t.Helper()
	tasks, err := t.inspector.ListRetryTasks(queue)
	if err != nil || len(tasks) != n {
		t.Fatalf("%d tasks are put back, want %d; %v", len(tasks), n, err)
	}
	for _, task := range tasks {
		if next := task.NextProcessAt; task.Retried != 0 || next.Before(after) ||
			next.After(before) {
			t.Errorf("retried %d times, next at %v, want %v to %v", task.Retried, next, after,
				before)
		}
	}
	info, err := t.inspector.GetQueueInfo(queue)
	if err != nil || info.Archived > 0 || info.Failed > 0 {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestAsynq: two processes together handle what the limits of a tenant admit, put back the rest for
// RetryAfter, and go on with other tenants.
func TestAsynq(t *testing.T) {
	at := newAsynqTest(t)
	worker := asynqWorker{at.addr, ratelimit.PerHour("quota", 10), 2, time.Minute, 2}
	processes := []*servers.Process{servers.StartProcess(t, workerVariable, worker),
		servers.StartProcess(t, workerVariable, worker)}

	began := time.Now()
	at.enqueue("ann", "default", "", 15)
	at.enqueue("bob", Background, "", 15)
	servers.Await(t, func() (bool, error) {
		return len(at.runs("ann")) >= 10 && len(at.runs("bob")) >= 8, nil
	})
	at.enqueue("bob", "default", "", 5)
	at.await()
	// A task that too many running ones kept away is back within two seconds.
	servers.Await(t, func() (bool, error) { return len(at.runs("")) >= 20, nil })
	servers.Await(t, func() (bool, error) {
		for _, queue := range []string{"default", Background} {
			tasks, err := at.inspector.ListRetryTasks(queue)
			if err != nil || slices.ContainsFunc(tasks, func(task *asynq.TaskInfo) bool {
				return task.NextProcessAt.Before(began.Add(time.Hour))
			}) {
				return false, err
			}
		}
		return true, nil
	})
	at.await()
	until := time.Now().Add(time.Hour + 2*time.Second)

	pids := make(map[int]int)
	for _, r := range at.runs("") {
		pids[r.PID]++
	}
	if ann, bob := len(at.runs("ann")), len(at.runs("bob")); ann != 10 || bob != 10 ||
		len(pids) != 2 {
		t.Errorf("%d of ann and %d of bob ran, by process %v", ann, bob, pids)
	}
	at.wantPutBack("default", 5+3, began.Add(time.Hour), until)
	at.wantPutBack(Background, 15-8, began.Add(time.Hour), until)
	for _, p := range processes {
		p.Stdin.Close()
		if err := p.Cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// TestAsynqComesBack: a task that is put back runs after RetryAfter, and one on its last try waits
// instead, since asynq would archive it.
func TestAsynqComesBack(t *testing.T) {
	at := newAsynqTest(t)
	quota := ratelimit.Limit{Name: "quota", Max: 2, Window: 2 * time.Second}
	began, err := at.redis.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	stop, err := asynqWorker{at.addr, quota, 5, time.Minute, 5}.start()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	at.enqueue("ann", "default", "", 3)
	at.enqueue("bob", "default", "", 3, asynq.MaxRetry(0))
	servers.Await(t, func() (bool, error) { return len(at.runs("")) == 6, nil })
	at.await()
	for _, tenant := range []string{"ann", "bob"} {
		if third := at.runs(tenant)[2].At; third.Before(began.Add(quota.Window)) {
			t.Errorf("the third task of %s ran %v after the start", tenant, third.Sub(began))
		}
	}
	at.wantPutBack("default", 0, began, began)
}

// TestAsynqReleases: a task that panics or fails is not running any more, and is retried.
func TestAsynqReleases(t *testing.T) {
	at := newAsynqTest(t)
	stop, err := asynqWorker{at.addr, ratelimit.PerHour("quota", 10), 1, time.Minute, 1}.start()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	began := time.Now()
	at.enqueue("ann", "default", "panic", 1)
	at.enqueue("ann", "default", "fail", 1)
	at.enqueue("ann", "default", "", 1)
	servers.Await(t, func() (bool, error) { return len(at.runs("ann")) >= 3, nil })
	if took := time.Since(began); took > 30*time.Second { // half of the time-out
		t.Errorf("took %v", took)
	}
	at.await()
	tasks, err := at.inspector.ListRetryTasks("default")
	if err != nil || len(tasks) != 2 || tasks[0].Retried != 1 || tasks[1].Retried != 1 {
		t.Errorf("%+v, %v", tasks, err)
	}
}

// TestAsynqCrash: the job of a process that was killed is not running any more after the time-out,
// and until then it is.
func TestAsynqCrash(t *testing.T) {
	at := newAsynqTest(t)
	worker := asynqWorker{at.addr, ratelimit.PerHour("quota", 10), 1, 1500 * time.Millisecond, 1}
	process := servers.StartProcess(t, workerVariable, worker)
	at.enqueue("ann", "default", "hang", 1)
	servers.Await(t, func() (bool, error) { return len(at.runs("ann")) == 1, nil })
	if err := process.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = process.Cmd.Wait()
	killed, err := at.redis.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	stop, err := worker.start()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	at.enqueue("ann", "default", "", 1)
	servers.Await(t, func() (bool, error) { return len(at.runs("ann")) == 2, nil })
	// The process has renewed the hold at the latest a third of the time-out before it was killed.
	if free := at.runs("ann")[1].At.Sub(killed); free < 800*time.Millisecond {
		t.Errorf("the next job ran %v after the kill", free)
	}
}
