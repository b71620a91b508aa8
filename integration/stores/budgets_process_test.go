package stores

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// holderEnv makes the test binary a process that holds reservations: it has a holderTask.
const holderEnv = "RATELIMIT_TEST_HOLDER"

// holderTask is what a process reserves: units of money in each of several streams, which are calls
// in flight too.
type holderTask struct {
	Addr, Key       string
	Streams         int
	Units, Most     int64
	Timeout, Keep   time.Duration
	Pass            bool // pass the reservations on as tokens
	CallsInFlight   int64
	TokensToSettle  []string // settle these in place of reserving
	UsedOfTheTokens int64
}

// holder runs in the process. It returns the exit code.
func holder(env string) int { return servers.RunTask(env, holderTask.run) }

// run reserves, and answers with its tokens, or with the errors of its settlements. Then it keeps
// the reservations until its input ends.
func (task holderTask) run() error {
	client := (&servers.Target{Addrs: []string{task.Addr}}).Open()
	defer client.Close()
	store, err := redisstore.New(client, &serverstore.Options{Timeout: clients.Patient})
	if err != nil {
		return err
	}
	money, calls, err := task.limiters(store)
	if err != nil {
		return err
	}
	ctx := context.Background()
	var open []*ratelimit.Reservation
	var texts []string
	for range task.Streams {
		r, err := ratelimit.ReserveAll(ctx,
			ratelimit.Claim{Limiter: money, Key: task.Key, N: task.Units},
			ratelimit.Claim{Limiter: calls, Key: task.Key, N: 1})
		if err != nil {
			return err
		}
		if open = append(open, r); !task.Pass {
			continue
		}
		if err := r.Renew(ctx, task.Keep); err != nil {
			return err
		}
		text, err := r.Token()
		if err != nil {
			return err
		}
		texts = append(texts, text)
	}
	for _, text := range task.TokensToSettle {
		r, err := ratelimit.Resume(text, money, calls)
		if err != nil {
			return err
		}
		texts = append(texts, errorText(r.Commit(ctx, task.UsedOfTheTokens)))
	}
	answers := json.NewEncoder(os.Stdout)
	if err := errors.Join(answers.Encode(true), answers.Encode(texts)); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(open)
	return err
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (task holderTask) limiters(
	store ratelimit.Store,
) (money, calls *ratelimit.Limiter, err error) {
	money, err = ratelimit.New(store, algorithm.Budget(algorithm.FixedWindow(
		ratelimit.Limit{Name: "money", Max: task.Most, Window: 24 * time.Hour},
	)).WithTimeout(task.Timeout))
	if err != nil {
		return nil, nil, err
	}
	calls, err = ratelimit.New(store,
		algorithm.InFlight("calls", task.CallsInFlight).WithTimeout(task.Timeout))
	return money, calls, err
}

// start starts a process and returns it with its answers.
func (task holderTask) start(t *testing.T) (*servers.Process, []string) {
	t.Helper()
	p := servers.StartProcess(t, holderEnv, task)
	var texts []string
	if err := p.Answers.Decode(&texts); err != nil {
		t.Fatal(err)
	}
	return p, texts
}

// end makes a process end.
func end(t *testing.T, p *servers.Process) {
	t.Helper()
	p.Stdin.Close()
	if err := p.Cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// kill ends a process with SIGKILL.
func kill(t *testing.T, p *servers.Process) {
	t.Helper()
	if err := p.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Cmd.Wait(); err == nil {
		t.Error("the process ended before it was killed, want it running")
	}
}

// charged returns how many units are held or recorded.
func charged(t *testing.T, l *ratelimit.Limiter, key string) int64 {
	t.Helper()
	res := look(t, l, key)
	return res.Limit.Max - res.Remaining
}

func look(t *testing.T, l *ratelimit.Limiter, key string) ratelimit.Result {
	t.Helper()
	res, err := l.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// took returns how long it takes until units are charged.
func took(t *testing.T, l *ratelimit.Limiter, key string, units int64) time.Duration {
	t.Helper()
	began := time.Now()
	servers.Within(t, func() bool { return charged(t, l, key) == units },
		"not "+strconv.FormatInt(units, 10)+" units are charged")
	return time.Since(began)
}

// want checks how many units are charged.
func want(t *testing.T, l *ratelimit.Limiter, key string, units int64) {
	t.Helper()
	if got := charged(t, l, key); got != units {
		t.Errorf("%d units are charged, want %d", got, units)
	}
}

// TestBudgetsOfProcesses: what happens to the reservations of a process that is killed, stopped, or
// passes its tokens on, and of one whose server is away.
func TestBudgetsOfProcesses(t *testing.T) {
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		store := clients.CalmStore(t, &servers.Target{Addrs: []string{server.Addr}}, nil)
		for _, tt := range []struct {
			name string
			run  func(*testing.T, ratelimit.Store, holderTask)
		}{
			{"killed", killedHolder},
			{"stopped", stoppedHolder},
			{"tokens", resumedHolder},
			{"renewed", renewedHolder},
		} {
			t.Run(tt.name, func(t *testing.T) {
				tt.run(t, store, holderTask{
					Addr: server.Addr, Key: servers.FreshKey(t), Streams: 5, Units: 20, Most: 100,
					CallsInFlight: 5, Timeout: time.Second,
				})
			})
		}
	})
}

// longest is how long a hold of a time-out lasts at most.
func longest(timeout time.Duration) time.Duration { return timeout + timeout/8 + time.Microsecond }

// killedHolder: the units of five streams under a daily budget are free within the time-out and a
// second after their process was killed.
func killedHolder(t *testing.T, store ratelimit.Store, task holderTask) {
	money, calls, err := task.limiters(store)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := task.start(t)
	want(t, money, task.Key, 100)
	want(t, calls, task.Key, 5)
	kill(t, p)
	for _, l := range []*ratelimit.Limiter{money, calls} {
		if res := look(t, l, task.Key); res.ResetAfter > longest(task.Timeout) {
			t.Errorf("%v: free only after %v", res.Limit, res.ResetAfter)
		}
	}
	servers.Measured("%s: free after %v", t.Name(), took(t, money, task.Key, 0))
	want(t, calls, task.Key, 0)
	if res, err := money.AllowN(t.Context(), task.Key, 100); err != nil || !res.Allowed {
		t.Errorf("got %+v, %v; want an admission", res, err)
	}
}

// stoppedHolder: a process that is stopped for longer than the time-out loses its units to others,
// and its first renewal brings its holds back.
func stoppedHolder(t *testing.T, store ratelimit.Store, task holderTask) {
	money, calls, err := task.limiters(store)
	if err != nil {
		t.Fatal(err)
	}
	gauge := task
	gauge.Most = driver.MaxUnits
	all, _, err := gauge.limiters(store)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := task.start(t)
	if err := p.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	took(t, money, task.Key, 0)
	if res, err := money.AllowN(t.Context(), task.Key, 100); err != nil || !res.Allowed {
		t.Fatalf("AllowN: got %+v, %v; want an admission", res, err)
	}
	if err := p.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	servers.Measured("%s: brought back after %v", t.Name(), took(t, all, task.Key, 200))
	want(t, calls, task.Key, 5)
	end(t, p) // its process ends without settling
	took(t, all, task.Key, 100)
}

// resumedHolder: another process settles the reservations of a killed one by their tokens, once.
func resumedHolder(t *testing.T, store ratelimit.Store, task holderTask) {
	task.Pass, task.Keep, task.Most = true, 16*task.Timeout, 1000
	money, calls, err := task.limiters(store)
	if err != nil {
		t.Fatal(err)
	}
	p, texts := task.start(t)
	kill(t, p)
	if len(texts) != task.Streams {
		t.Fatalf("%d tokens", len(texts))
	}
	other := task
	other.Streams, other.TokensToSettle, other.UsedOfTheTokens = 0, texts[:4], 25
	p, errs := other.start(t)
	end(t, p)
	if text := strings.Join(errs, ""); text != "" || len(errs) != 4 {
		t.Fatalf("%d commits: %s", len(errs), text)
	}
	want(t, money, task.Key, 4*25+20)
	for _, text := range texts[:4] {
		r, err := ratelimit.Resume(text, money, calls)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Commit(t.Context(), 25); !errors.Is(err, ratelimit.ErrNotHeld) {
			t.Errorf("the second Commit: got %v, want ErrNotHeld", err)
		}
	}
	r, err := ratelimit.Resume(texts[4], money, calls)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Cancel(t.Context()); err != nil {
		t.Error(err)
	}
	want(t, money, task.Key, 4*25)
	want(t, calls, task.Key, 0)
}

// renewedHolder: a call that is renewed for three time-outs still counts, and one that is not is
// free.
func renewedHolder(t *testing.T, store ratelimit.Store, task holderTask) {
	_, calls, err := task.limiters(store)
	if err != nil {
		t.Fatal(err)
	}
	task.Streams = 1
	p, _ := task.start(t)
	task.Pass = true
	abandoned, _ := task.start(t)
	want(t, calls, task.Key, 2)
	took(t, calls, task.Key, 1)
	for began := time.Now(); time.Since(began) < 3*task.Timeout; time.Sleep(task.Timeout / 20) {
		want(t, calls, task.Key, 1)
	}
	end(t, abandoned)
	end(t, p)
	took(t, calls, task.Key, 0)
}

// TestBudgetsOfServerAway: after a server was away for longer than the time-out, the holds are back
// with their next renewal.
func TestBudgetsOfServerAway(t *testing.T) {
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		store := clients.CalmStore(t, &servers.Target{Addrs: []string{server.Addr}}, nil)
		money, calls, err := holderTask{Most: 100, CallsInFlight: 5, Timeout: time.Second}.
			limiters(store)
		if err != nil {
			t.Fatal(err)
		}
		key := servers.FreshKey(t)
		r, err := ratelimit.ReserveAll(t.Context(),
			ratelimit.Claim{Limiter: money, Key: key, N: 60},
			ratelimit.Claim{Limiter: calls, Key: key, N: 1})
		if err != nil {
			t.Fatal(err)
		}
		server.Signal(t, "SIGSTOP")
		time.Sleep(2 * time.Second) // beyond the time-out
		server.Signal(t, "SIGCONT")
		servers.Measured("%s: brought back after %v", t.Name(), took(t, money, key, 60))
		want(t, calls, key, 1)
		if err := r.Commit(t.Context(), 70); err != nil {
			t.Error(err)
		}
		want(t, money, key, 70)
		want(t, calls, key, 0)
	})
}

// TestCancelWithoutRight: a Cancel that fails can be repeated, and then frees the call at once.
func TestCancelWithoutRight(t *testing.T) {
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		addr := servers.Start(t, image).Addr
		admin := servers.Connect(t, addr)
		rights := func(rights string) {
			t.Helper()
			if err := admin.Do(t.Context(), clients.ACL(rights)...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		rights(clients.DecisionRights)
		client := redis.NewClient(
			&redis.Options{Addr: addr, Username: "cacher", Password: "hunter2"})
		t.Cleanup(func() { client.Close() })
		store := clients.GoRedis(client).NewStore(t, &serverstore.Options{Timeout: clients.Patient})
		calls, err := ratelimit.New(store,
			algorithm.InFlight("calls", 1).WithTimeout(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		r, err := calls.Reserve(t.Context(), "key", 1)
		if err != nil || !r.Allowed() {
			t.Fatal(r, err)
		}
		denied := regexp.MustCompile("has no permissions|can't run this command") // as Redis 7 says
		for _, right := range []string{"+evalsha", "+time", "+hget"} {
			rights(clients.DecisionRights + " -" + right[1:])
			if err := r.Cancel(t.Context()); err == nil || !denied.MatchString(err.Error()) {
				t.Errorf("without %s: %v, want that it has no permissions", right, err)
			}
			rights(clients.DecisionRights)
			want(t, calls, "key", 1)
		}
		if err := r.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		want(t, calls, "key", 0)
	})
}

// TestManyReservations prints what the renewals of 10,000 open reservations of one process cost.
func TestManyReservations(t *testing.T) {
	t.Parallel() // it mostly waits
	const keys, timeout = 100, 6 * time.Second
	open := depth.Of(2000, 10_000)
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		store := clients.CalmStore(t, &servers.Target{Addrs: []string{server.Addr}}, nil)
		tokens, err := ratelimit.New(store, algorithm.Budget(algorithm.SlidingLog(
			ratelimit.PerMinute("tokens", 1_000_000))).WithTimeout(timeout))
		if err != nil {
			t.Fatal(err)
		}
		admin := servers.Connect(t, server.Addr)
		var all []*ratelimit.Reservation
		for i := range open {
			r, err := tokens.Reserve(t.Context(), "tenant"+strconv.Itoa(i%keys), 10)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		const during = 2 * timeout
		before := costs(t, admin)
		time.Sleep(during)
		after := costs(t, admin)
		seconds := during.Seconds()
		servers.Measured("%s: %d open, time-out %v: %.0f scripts a second for %d renewals, CPU of "+
			"the server %.1f %%, of the process %.1f %%", t.Name(), open, timeout,
			float64(after.scripts-before.scripts)/seconds, open*3/int(timeout.Seconds()),
			100*(after.server-before.server)/seconds, 100*(after.process-before.process)/seconds)
		for i := range keys {
			want(t, tokens, "tenant"+strconv.Itoa(i), int64(open/keys*10))
		}
		for _, r := range all {
			if err := r.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		want(t, tokens, "tenant0", 0)
	})
}

// cost is what a server and this process have used so far, in seconds.
type cost struct {
	server, process float64
	scripts         int64
}

func costs(t *testing.T, admin *redis.Client) (c cost) {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	c.process = time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
	info, err := admin.Info(t.Context(), "cpu").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			c.server += seconds
		}
	}
	c.scripts = servers.CountScripts(t, admin)
	return c
}
