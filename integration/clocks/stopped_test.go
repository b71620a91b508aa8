package clocks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	rueidisstore "github.com/truewindow/ratelimit/backend/rueidis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	valkeystore "github.com/truewindow/ratelimit/backend/valkey"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/storeclock"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
	"github.com/truewindow/ratelimit/internal/testkit/leak"
)

const (
	stoppedMax      = 5 // limit of a process's own key, used up before it is stopped
	stoppedCacheAge = time.Second
	stoppedPace     = 2 * time.Millisecond
	stoppedAskers   = 4 // goroutines for each key
)

var (
	// the limit of a key that all processes share
	stoppedBusy   = algorithm.SlidingLog(ratelimit.Limit{Max: 50, Window: 2 * time.Second})
	stoppedDenied = algorithm.SlidingLog(ratelimit.PerHour("hour", stoppedMax))
)

// stoppedEnv makes the test binary a process to be stopped: it holds a stoppedTask.
const stoppedEnv = "RATELIMIT_TEST_STOPPED"

type stoppedTask struct{ Addr, Library, Prefix string }

func (task stoppedTask) busy() driver.Demand {
	return driver.Demand{Key: "busy", Algorithm: stoppedBusy, N: 1}
}

func (task stoppedTask) denied() driver.Demand {
	return driver.Demand{Key: "denied to " + task.Library, Algorithm: stoppedDenied, N: 1}
}

// stoppedAnswers are the answers that a process got. Times are since its start.
type stoppedAnswers struct {
	Busy, Denied []stoppedAnswer
	Slept, Woke  time.Duration // bounds of its longest standstill
	Still        time.Duration // second longest standstill
	Left         []string      // goroutines left behind
}

type stoppedAnswer struct {
	Asked, Answered time.Duration
	Allowed         bool
	Source          ratelimit.Source
	At              int64 // of an admission of the busy key, on the server's clock
	Unknown         bool
	Err             string
}

// TestStoppedProcess stops processes with demands in flight and cached refusals, for 3s, or 30s in
// a full run. When they continue, every call is answered, no more than the limit is admitted, no
// cached refusal is older than CacheAge, and each demand reaches the server at most once.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	stop := depth.Of(3*time.Second, 30*time.Second)
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		s := servers.Start(t, image)
		control := servers.Connect(t, s.Addr)
		prefix := servers.UniquePrefix()
		own := clients.GoRedis(control).
			NewStore(t, &serverstore.Options{Prefix: prefix, Timeout: clients.Patient})
		processes := make([]*stoppedProcess, len(clients.Libraries))
		for i, lib := range clients.Libraries {
			processes[i] = startStopped(t, stoppedTask{s.Addr, lib.Name, prefix})
		}
		time.Sleep(time.Second) // traffic
		for _, p := range processes {
			p.signal(t, syscall.SIGSTOP)
		}
		time.Sleep(stop)
		var times []int64
		for _, p := range processes {
			reset := p.task.denied()
			reset.Op = driver.OpReset
			clients.Ask(t, own, reset)
		}
		for {
			res, at, err := takeTimed(t.Context(), own, processes[0].task.busy())
			if err != nil {
				t.Fatal(err)
			}
			if !res.Allowed {
				break
			}
			times = append(times, at)
		}
		scripts, connections := servers.CountScripts(t, control), countConnections(t, control)
		for _, p := range processes {
			p.signal(t, syscall.SIGCONT)
		}
		time.Sleep(2 * time.Second)
		asked := int64(0)
		for _, p := range processes {
			a := p.finish(t)
			times = append(times, p.check(t, a, stop)...)
			asked += a.sentSince(a.Slept)
		}
		if n := len(times); n < 2*int(stoppedBusy.Limit().Max) {
			t.Errorf("got %d admissions, want at least %d", n, 2*int(stoppedBusy.Limit().Max))
		}
		checkWindows(t, times)
		// No demand is sent twice, not even by a client that reconnects.
		if n := servers.CountScripts(t, control) - scripts; n > asked {
			t.Errorf("the server ran %d scripts for %d demands, want one each at most", n, asked)
		}
		if n := countConnections(t, control) - connections; n > int64(16*len(processes)) {
			t.Errorf("%d new connections from %d processes, want 16 each at most", n,
				len(processes))
		}
	})
}

// checkWindows checks by the server's clock that no window admits more than the limit of the busy
// key.
func checkWindows(t *testing.T, times []int64) {
	t.Helper()
	limit := stoppedBusy.Limit()
	slices.Sort(times)
	for i := int(limit.Max); i < len(times); i++ {
		if apart := time.Duration(times[i]-
			times[i-int(limit.Max)]) * time.Microsecond; apart < limit.Window {
			t.Fatalf("%d admitted within %v, want at most %d in %v", limit.Max+1, apart,
				limit.Max, limit.Window)
		}
	}
}

func countConnections(t testing.TB, c *redis.Client) int64 {
	t.Helper()
	stats, err := c.InfoMap(t.Context(), "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(stats["Stats"]["total_connections_received"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// sentSince counts the demands that may have been sent since then.
func (a *stoppedAnswers) sentSince(since time.Duration) (n int64) {
	for _, answers := range [][]stoppedAnswer{a.Busy, a.Denied} {
		for _, ans := range answers {
			if ans.Answered >= since && ans.Source != ratelimit.SourceCache {
				n++
			}
		}
	}
	return n
}

// stoppedProcess is the test's handle of a process.
type stoppedProcess struct {
	*servers.Process
	task stoppedTask
}

func startStopped(t *testing.T, task stoppedTask) *stoppedProcess {
	t.Helper()
	return &stoppedProcess{servers.StartProcess(t, stoppedEnv, task), task}
}

func (p *stoppedProcess) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := p.Cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func (p *stoppedProcess) finish(t *testing.T) *stoppedAnswers {
	t.Helper()
	a := new(stoppedAnswers)
	if err := p.Commands.Encode(true); err != nil {
		t.Fatal(err)
	}
	if err := p.Answers.Decode(a); err != nil {
		t.Fatalf("%s: %v", p.task.Library, err)
	}
	if err := p.Cmd.Wait(); err != nil {
		t.Error(err)
	}
	return a
}

// check checks the answers and returns the times of the admissions of the busy key.
func (p *stoppedProcess) check(
	t *testing.T, a *stoppedAnswers, stop time.Duration,
) (times []int64) {
	t.Helper()
	name := p.task.Library
	if gap := a.Woke - a.Slept; gap < stop*9/10 {
		t.Fatalf("%s: stood still for %v, want %v", name, gap, stop)
	}
	if len(a.Left) > 0 {
		t.Errorf("%s: %d goroutines are left behind, such as: %s", name, len(a.Left), a.Left[0])
	}
	var longest, back time.Duration
	unknown, failed := 0, 0
	for _, ans := range slices.Concat(a.Busy, a.Denied) {
		took := ans.Answered - ans.Asked
		if ans.Asked < a.Woke && ans.Answered > a.Slept {
			took = ans.Answered - a.Woke
		}
		longest = max(longest, took)
		switch {
		case ans.Unknown:
			unknown++
		case ans.Err != "":
			failed++
		case ans.Source == ratelimit.SourceStore && ans.Asked > a.Woke &&
			(back == 0 || ans.Answered-a.Woke < back):
			back = ans.Answered - a.Woke
		}
	}
	servers.Measured("stopped for %v, %s: decides again after %v, slowest answer %v after; %d "+
		"outcomes unknown, %d not sent", stop, name,
		back.Round(time.Millisecond), longest.Round(time.Millisecond), unknown, failed)
	if longest > servers.LatestAnswer(100*time.Millisecond, a.Still) {
		t.Errorf("%s: a call was answered after %v; besides, the process stood still for %v", name,
			longest, a.Still)
	}
	if back == 0 {
		t.Errorf("%s: the server decided nothing after the process continued", name)
	}
	p.checkDenied(t, a)
	for _, ans := range a.Busy {
		if ans.Allowed {
			times = append(times, ans.At)
		}
	}
	return times
}

// checkDenied checks the key that was reset while the process was stopped: it is refused again only
// when its limit is used up again.
func (p *stoppedProcess) checkDenied(t *testing.T, a *stoppedAnswers) {
	t.Helper()
	var asked []time.Duration // of demands that were, or may have been, admitted since the reset
	// some answers may come before watch notices that the process continues
	still := (a.Slept + a.Woke) / 2
	for _, ans := range a.Denied {
		if ans.Answered >= still && (ans.Allowed || ans.Unknown) {
			asked = append(asked, ans.Asked)
		}
	}
	slices.Sort(asked)
	if len(asked) < stoppedMax {
		t.Errorf("%s: %d admitted after a reset, want %d", p.task.Library, len(asked), stoppedMax)
		return
	}
	cached, admitted := 0, 0
	for _, ans := range a.Denied {
		switch {
		case ans.Source == ratelimit.SourceCache:
			cached++
		case ans.Asked >= a.Woke && ans.Allowed:
			admitted++
		}
		if ans.Asked >= a.Woke && ans.Err == "" && !ans.Allowed &&
			ans.Answered < asked[stoppedMax-1] {
			t.Errorf("%s: %v returned a refusal from before the reset %v after the process "+
				"continued", p.task.Library, ans.Source, ans.Asked-a.Woke)
			return
		}
	}
	if admitted > stoppedMax {
		t.Errorf("%s: %d admitted after a reset, want at most %d", p.task.Library, admitted,
			stoppedMax)
	}
	if p.task.Library != "go-redis" && cached == 0 {
		t.Errorf("%s: the cache refused nothing: this test proves nothing", p.task.Library)
	}
}

// stoppedProcessMain runs in the process. It returns the exit code.
func stoppedProcessMain(env string) int { return servers.RunTask(env, stoppedTask.run) }

func (task stoppedTask) run() error {
	store, closeStore, err := task.open()
	for errors.Is(err, ratelimit.ErrUnavailable) { // a busy machine
		store, closeStore, err = task.open()
	}
	if err != nil {
		return err
	}
	for used := false; !used; { // on a busy machine a take may time out
		res, err := store.Take(context.Background(), task.denied())
		if err != nil && !errors.Is(err, ratelimit.ErrUnavailable) {
			return fmt.Errorf("%s: %w", task.Library, err)
		}
		used = err == nil && !res.Allowed
	}
	commands, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	if err := answers.Encode(true); err != nil {
		return err
	}
	log := &stoppedLog{start: time.Now(), done: make(chan struct{})}
	log.wg.Go(log.watch)
	for range stoppedAskers {
		log.wg.Go(func() { log.ask(store, task.busy(), takeTimed, &log.Busy) })
		log.wg.Go(func() { log.ask(store, task.denied(), takeUntimed, &log.Denied) })
	}
	var end bool
	err = commands.Decode(&end)
	close(log.done)
	log.wg.Wait()
	closeStore()
	if err != nil {
		return err
	}
	log.Left = leak.Left(servers.FaultTimeout)
	return answers.Encode(log.stoppedAnswers)
}

// open returns a store, which caches refusals if the library can.
func (task stoppedTask) open() (s ratelimit.Store, closeStore func(), err error) {
	opts := serverstore.Options{Prefix: task.Prefix}
	d := clients.Dialing{Addrs: []string{task.Addr}}
	switch task.Library {
	case "rueidis":
		s, err := rueidisstore.Open(d.RueidisOption(),
			&serverstore.OpenOptions{Options: opts, CacheAge: stoppedCacheAge})
		return s, func() { s.Close() }, err
	case "valkey-go":
		s, err := valkeystore.Open(d.ValkeyOption(),
			&serverstore.OpenOptions{Options: opts, CacheAge: stoppedCacheAge})
		return s, func() { s.Close() }, err
	}
	c, err := clients.OpenGoRedis(d)
	if err != nil {
		return nil, nil, err
	}
	s, err = c.Store(&opts)
	return s, c.Close, err
}

// stoppedLog collects the answers of a process.
type stoppedLog struct {
	start time.Time
	done  chan struct{}
	wg    sync.WaitGroup
	mu    sync.Mutex
	stoppedAnswers
}

// takeTimed takes, and returns when the server decided.
func takeTimed(
	ctx context.Context, s ratelimit.Store, d driver.Demand,
) (res ratelimit.Result, at int64, err error) {
	out := make([]ratelimit.Result, 2)
	err = s.TakeAll(ctx, []driver.Demand{d, storeclock.Show(d.Key)}, out)
	return out[0], storeclock.Of(out[1], time.Now().UnixMicro()), err
}

func takeUntimed(
	ctx context.Context, s ratelimit.Store, d driver.Demand,
) (res ratelimit.Result, _ int64, err error) {
	res, err = s.Take(ctx, d)
	return res, 0, err
}

func (l *stoppedLog) ask(
	store ratelimit.Store, d driver.Demand,
	take func(context.Context, ratelimit.Store, driver.Demand) (ratelimit.Result, int64, error),
	to *[]stoppedAnswer,
) {
	tick := time.NewTicker(stoppedPace)
	defer tick.Stop()
	for {
		select {
		case <-l.done:
			return
		case <-tick.C:
		}
		ans := stoppedAnswer{Asked: time.Since(l.start)}
		res, at, err := take(context.Background(), store, d)
		ans.Answered = time.Since(l.start)
		if err == nil {
			ans.Allowed, ans.Source, ans.At = res.Allowed, res.Source, at
		} else {
			ans.Err, ans.Unknown = err.Error(), errors.Is(err, ratelimit.ErrOutcomeUnknown)
		}
		l.mu.Lock()
		*to = append(*to, ans)
		l.mu.Unlock()
	}
}

// watch finds out when the process was stopped.
func (l *stoppedLog) watch() {
	tick := time.NewTicker(stoppedPace)
	defer tick.Stop()
	for last := time.Since(l.start); ; {
		select {
		case <-l.done:
			return
		case <-tick.C:
		}
		now := time.Since(l.start)
		if still := now - last; still > l.Woke-l.Slept {
			l.Still = l.Woke - l.Slept
			l.Slept, l.Woke = last, now
		} else {
			l.Still = max(l.Still, still)
		}
		last = now
	}
}
