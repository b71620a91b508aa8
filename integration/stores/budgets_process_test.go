package stores

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// holderEnv makes the test binary a process that holds reservations: it has a holderTask.
const holderEnv = "RATELIMIT_TEST_HOLDER"

// holderTask is what a process reserves: Reserve tokens in each of two reservations. The first also
// holds a call in flight.
type holderTask struct {
	Addr, Key string
	Tokens    ratelimit.Limit
	Calls     ratelimit.Limit // limit of calls in flight
	Reserve   int64
}

// held describes what a process has reserved.
type held struct {
	Tokens      [2]string
	Stamp       int64 // of the first reservation
	SecondStamp int64
}

// holder runs in the process. It returns the exit code.
func holder(env string) int { return servers.RunTask(env, holderTask.run) }

// run reserves, and then commits the amounts that it reads, until its input ends.
func (task holderTask) run() error {
	client := (&servers.Target{Addrs: []string{task.Addr}}).Open()
	defer client.Close()
	store, err := redisstore.New(client, &serverstore.Options{Timeout: clients.Patient})
	if err != nil {
		return err
	}
	tokens, calls, err := task.limiters(store)
	if err != nil {
		return err
	}
	ctx := context.Background()
	claim := ratelimit.Claim{Limiter: tokens, Key: task.Key, N: task.Reserve}
	first, err := ratelimit.ReserveAll(ctx, claim,
		ratelimit.Claim{Limiter: calls, Key: task.Key, N: 1})
	if err != nil {
		return err
	}
	second, err := ratelimit.ReserveAll(ctx, claim)
	if err != nil {
		return err
	}
	h := held{Stamp: first.Results()[0].At, SecondStamp: second.Results()[0].At}
	for i, r := range []**ratelimit.Reservation{&first, &second} {
		if h.Tokens[i], err = (*r).Token(); err != nil {
			return err
		}
		if *r, err = ratelimit.Resume(h.Tokens[i], tokens, calls); err != nil {
			return err
		}
	}
	commands, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	if err := errors.Join(answers.Encode(true), answers.Encode(h)); err != nil {
		return err
	}
	for {
		var used [2]int64
		if err := commands.Decode(&used); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		err := errors.Join(first.Commit(ctx, used[0], 0), second.Commit(ctx, used[1]))
		if err != nil {
			return err
		}
		if err := answers.Encode(true); err != nil {
			return err
		}
	}
}

func (task holderTask) limiters(
	store ratelimit.Store,
) (tokens, calls *ratelimit.Limiter, err error) {
	tokens, err = ratelimit.New(store, algorithm.SlidingLog(task.Tokens))
	if err != nil {
		return nil, nil, err
	}
	calls, err = ratelimit.NewInFlight(store, algorithm.SlidingLog(task.Calls))
	return tokens, calls, err
}

// start starts a process and returns it with what it has reserved.
func (task holderTask) start(t *testing.T) (*servers.Process, held) {
	t.Helper()
	p := servers.StartProcess(t, holderEnv, task)
	var h held
	if err := p.Answers.Decode(&h); err != nil {
		t.Fatal(err)
	}
	return p, h
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

// peekCharged returns how many units are charged, and the time of that answer by the server's
// clock.
func peekCharged(t *testing.T, l *ratelimit.Limiter, key string) (charged, at int64) {
	t.Helper()
	res, err := l.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return res.Limit.Max - res.Remaining, res.At
}

// TestBudgetsOfProcesses: what happens to the reservations of a process that is killed, stopped, or
// passes its tokens on.
func TestBudgetsOfProcesses(t *testing.T) {
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		addr := servers.Start(t, image).Addr
		store := clients.CalmStore(t, &servers.Target{Addrs: []string{addr}}, nil)
		for _, tt := range []struct {
			name string
			run  func(*testing.T, ratelimit.Store, holderTask)
			unit time.Duration
		}{
			{"killed", killedHolder, time.Second},
			{"stopped", stoppedHolder, time.Second},
			{"tokens", resumedHolder, time.Hour},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				tt.run(t, store, holderTask{
					Addr: addr, Key: servers.FreshKey(t), Reserve: 30,
					Tokens: ratelimit.Limit{Name: "tokens", Max: 100, Window: 3 * tt.unit},
					Calls:  ratelimit.Limit{Name: "calls", Max: 1, Window: 2 * tt.unit},
				})
			})
		}
	})
}

// killedHolder: reserved units stay charged until they leave the window, and a call in flight is
// released after its longest duration, to the microsecond of the server's clock.
func killedHolder(t *testing.T, store ratelimit.Store, task holderTask) {
	tokens, calls, err := task.limiters(store)
	if err != nil {
		t.Fatal(err)
	}
	p, h := task.start(t)
	kill(t, p)
	tokensWindow := task.Tokens.Window.Microseconds()
	callsWindow := task.Calls.Window.Microseconds()
	for charged, inFlight := int64(1), int64(1); charged+inFlight > 0; {
		var at int64
		charged, at = peekCharged(t, tokens, task.Key)
		var want int64
		for _, stamp := range []int64{h.Stamp, h.SecondStamp} {
			if at < stamp+tokensWindow {
				want += task.Reserve
			}
		}
		if charged != want {
			t.Fatalf("%d units are charged %dµs after the reservation; want %d",
				charged, at-h.Stamp, want)
		}
		inFlight, at = peekCharged(t, calls, task.Key)
		if held := at < h.Stamp+callsWindow; held != (inFlight == 1) {
			t.Fatalf("%d calls are in flight %dµs after the reservation; want one: %t", inFlight,
				at-h.Stamp, held)
		}
		time.Sleep(5 * time.Millisecond)
	}
	lease, err := calls.TryAcquire(t.Context(), task.Key)
	if err != nil || !lease.Allowed() {
		t.Errorf("TryAcquire: got %+v, %v; want a lease", lease, err)
	}
}

// stoppedHolder: a process that was stopped for longer than the window settles without giving back
// units of others, and charges what it used beyond its reservation.
func stoppedHolder(t *testing.T, store ratelimit.Store, task holderTask) {
	tokens, calls, err := task.limiters(store)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := task.start(t)
	if err := p.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	servers.Within(t, func() bool {
		charged, _ := peekCharged(t, tokens, task.Key)
		return charged == 0
	}, "the reserved units stay charged")
	taken, err := tokens.AllowN(t.Context(), task.Key, 100)
	if err != nil || !taken.Allowed {
		t.Fatalf("AllowN: got %+v, %v; want an admission", taken, err)
	}
	lease, err := calls.TryAcquire(t.Context(), task.Key)
	if err != nil || !lease.Allowed() {
		t.Fatalf("TryAcquire: got %+v, %v; want a lease", lease, err)
	}
	if err := p.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := p.Commands.Encode([2]int64{10, 45}); err != nil {
		t.Fatal(err)
	}
	var settled bool
	if err := p.Answers.Decode(&settled); err != nil {
		t.Fatal(err)
	}
	gauge := task
	gauge.Tokens.Max = driver.MaxUnits
	all, _, err := gauge.limiters(store)
	if err != nil {
		t.Fatal(err)
	}
	// The counts can be wrong if the machine stood still for a window.
	charged, at := peekCharged(t, all, task.Key)
	if at < taken.At+task.Tokens.Window.Microseconds() && charged != 115 {
		t.Errorf("%d units are charged; want 115: 100 taken, and 15 used beyond 30", charged)
	}
	inFlight, at := peekCharged(t, calls, task.Key)
	if at < lease.Result().At+task.Calls.Window.Microseconds() && inFlight != 1 {
		t.Errorf("%d calls are in flight; want 1", inFlight)
	}
	p.Stdin.Close()
	if err := p.Cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// resumedHolder: another process settles the reservations of a killed one by their tokens.
func resumedHolder(t *testing.T, store ratelimit.Store, task holderTask) {
	tokens, calls, err := task.limiters(store)
	if err != nil {
		t.Fatal(err)
	}
	p, h := task.start(t)
	kill(t, p)
	for i, used := range [][]int64{{10, 0}, {45}} {
		r, err := ratelimit.Resume(h.Tokens[i], calls, tokens)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Commit(t.Context(), used...); err != nil {
			t.Fatal(err)
		}
	}
	if charged, _ := peekCharged(t, tokens, task.Key); charged != 55 {
		t.Errorf("%d units are charged; want 55: the 10 and the 45 that were used", charged)
	}
	if inFlight, _ := peekCharged(t, calls, task.Key); inFlight != 0 {
		t.Errorf("%d calls are in flight; want none", inFlight)
	}
}
