package commands

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/faultproxy"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestServeHoldsInFaults has three processes share a budget and calls in flight on a server that is
// stopped, cut off from some of them, or loses answers; one process is killed. Each id is settled
// by several of them, and some never. In the end exactly what was used is charged, beyond the limit
// by no more than what was used beyond holds, and nothing is held.
func TestServeHoldsInFaults(t *testing.T) {
	t.Parallel() // it mostly waits
	bin := daemon.Build(t)
	servers.OneImage(t, "valkey/valkey:9", func(t *testing.T, image string) {
		for range 3 { // a machine that is too busy proves nothing
			if holdInFaults(t, bin, image) {
				return
			}
		}
		t.Error("no request failed, or no call was abandoned: this test proves nothing")
	})
}

// holdInFaults reports whether it has proved what it is about.
func holdInFaults(t *testing.T, bin, image string) bool {
	storm := &holdStorm{
		t: t, server: servers.Start(t, image), key: freshKey(t),
		client: &http.Client{Timeout: 10 * time.Second},
		seed:   rand.Uint64(),
	}
	t.Logf("seed %d", storm.seed)
	for range 3 {
		storm.start(bin)
	}
	var wg sync.WaitGroup
	for i := range 4 * stormCalls {
		wg.Go(func() { storm.work(rand.New(rand.NewPCG(storm.seed, uint64(i)+1))) })
	}
	storm.disturb(bin)
	storm.over.Store(true)
	wg.Wait()
	storm.judge()
	return storm.failed.Load() > 0 && storm.abandon.Load() > 0 &&
		storm.repeated.Load() >= 2*storm.settled.Load()
}

const (
	stormMoney = 1200
	stormCalls = 6
	stormHold  = 4 * time.Second // the time-out of holds
	stormLasts = 8 * time.Second
)

type holdStorm struct {
	t      *testing.T
	server *servers.Server
	key    string
	client *http.Client
	seed   uint64
	over   atomic.Bool

	mu      sync.Mutex
	daemons []string // URLs of those that run
	proxies []*faultproxy.Proxy

	running, used, beyond             atomic.Int64
	calls, settled, repeated, abandon atomic.Int64
	failed                            atomic.Int64
}

// start starts a daemon behind a proxy of its own, and returns it.
func (s *holdStorm) start(bin string) *daemon.Daemon {
	proxy := servers.Proxy(s.t, s.server.Addr)
	d := daemon.Start(s.t, bin, "--store=redis://"+proxy.Addr()+"?timeout=300ms",
		"--on-failure=closed", fmt.Sprintf("--limit=money=%d/24h", stormMoney),
		fmt.Sprintf("--in-flight=calls=%d/%v", stormCalls, stormHold))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proxies = append(s.proxies, proxy)
	s.daemons = append(s.daemons, "http://127.0.0.1:"+d.Port())
	return d
}

// disturb causes faults, kills a daemon in the middle, and returns when all is over.
func (s *holdStorm) disturb(bin string) {
	random := rand.New(rand.NewPCG(s.seed, 0))
	victim := s.start(bin)
	for began := time.Now(); time.Since(began) < stormLasts; {
		s.mu.Lock()
		proxy := s.proxies[random.IntN(len(s.proxies))]
		s.mu.Unlock()
		lasts := time.Duration(100+random.IntN(500)) * time.Millisecond
		switch random.IntN(5) {
		case 0:
			s.server.Signal(s.t, "SIGSTOP")
			time.Sleep(lasts)
			s.server.Signal(s.t, "SIGCONT")
		case 1:
			proxy.Set(faultproxy.Fault{Kind: faultproxy.Refuse})
			proxy.CutAll()
		case 2:
			proxy.Set(faultproxy.Fault{Kind: faultproxy.Freeze})
		case 3:
			proxy.Set(faultproxy.Fault{Kind: faultproxy.LoseRequests})
		case 4:
			proxy.Set(faultproxy.Fault{Kind: faultproxy.CutAfter, Holding: "evalsha"})
		}
		time.Sleep(lasts)
		proxy.Heal()
		if victim != nil && time.Since(began) > stormLasts/2 {
			s.mu.Lock()
			s.daemons = s.daemons[:len(s.daemons)-1]
			s.mu.Unlock()
			victim.Kill(s.t)
			victim = nil
		}
		time.Sleep(lasts)
	}
}

// post sends a request to some daemon that runs. The status is 0 if none answers.
func (s *holdStorm) post(random *rand.Rand, path, body string) (status int, text string) {
	s.mu.Lock()
	url := s.daemons[random.IntN(len(s.daemons))]
	s.mu.Unlock()
	res, err := s.client.Post(url+path, "application/json", strings.NewReader(body))
	if err != nil {
		s.failed.Add(1)
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	if res.StatusCode == http.StatusServiceUnavailable {
		s.failed.Add(1)
	}
	return res.StatusCode, string(b)
}

// work makes calls until the storm is over.
func (s *holdStorm) work(random *rand.Rand) {
	for !s.over.Load() {
		n := 1 + random.Int64N(20)
		began := time.Now()
		status, body := s.post(random, "/v1/decide", fmt.Sprintf(
			`{"hold_ms":%d,`, stormHold.Milliseconds())+
			claimsOf(s.key, fmt.Sprint("money ", n), "calls 1")[1:])
		switch status {
		case http.StatusOK:
			s.calls.Add(1)
			s.call(random, body, n, began)
		case http.StatusTooManyRequests, http.StatusServiceUnavailable, 0:
			time.Sleep(20 * time.Millisecond)
		default:
			s.t.Errorf("decide: %d %s", status, body)
			return
		}
	}
}

// call is a call that has begun. Some end without a settlement, as if their process were killed.
func (s *holdStorm) call(random *rand.Rand, body string, n int64, began time.Time) {
	var held struct{ ID string }
	if err := json.Unmarshal([]byte(body), &held); err != nil || held.ID == "" {
		s.t.Errorf("decide: %v %s", err, body)
		return
	}
	if at := s.running.Add(1); at > stormCalls {
		s.t.Errorf("%d calls are running, want at most %d", at, stormCalls)
	}
	time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
	s.running.Add(-1)
	if random.IntN(40) == 0 {
		s.abandon.Add(1)
		return
	}
	used := 1 + random.Int64N(n+n/4+1)
	s.used.Add(used)
	settlement := fmt.Sprintf(`{"id":%q,"used":%d}`, held.ID, used)
	var counted atomic.Int64
	var wg sync.WaitGroup
	for i := range 2 + random.IntN(2) {
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		wg.Go(func() {
			if s.settle(own, settlement) == http.StatusNoContent {
				counted.Add(1)
			}
		})
		if random.IntN(2) == 0 || i == 0 {
			wg.Wait()
		}
	}
	wg.Wait()
	if counted.Load() > 1 {
		s.t.Errorf("%d settlements of an id counted", counted.Load())
	}
	s.settled.Add(1)
	if time.Since(began) > stormHold {
		s.beyond.Add(used) // its hold may have timed out
	} else {
		s.beyond.Add(max(0, used-n))
	}
}

// settle sends a settlement until it is answered, and returns the status.
func (s *holdStorm) settle(random *rand.Rand, settlement string) int {
	for range 1000 {
		switch status, body := s.post(random, "/v1/settle", settlement); status {
		case http.StatusNoContent, http.StatusConflict:
			s.repeated.Add(1)
			return status
		case http.StatusServiceUnavailable, 0:
			time.Sleep(20 * time.Millisecond)
		default:
			s.t.Errorf("settle: %d %s", status, body)
			return status
		}
	}
	s.t.Error("a settlement is not answered")
	return 0
}

// judge compares what is charged in the end with what was used.
func (s *holdStorm) judge() {
	t := s.t
	store := clients.CalmStore(t, &servers.Target{Addrs: []string{s.server.Addr}}, nil)
	money, err1 := ratelimit.New(store, algorithm.Budget(algorithm.SlidingLog(
		ratelimit.PerDay("money", driver.MaxUnits))))
	calls, err2 := ratelimit.New(store,
		algorithm.InFlight("calls", stormCalls).WithTimeout(stormHold))
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	began := time.Now()
	var charged, inFlight int64
	for free := false; !free; time.Sleep(20 * time.Millisecond) {
		res, err1 := money.Peek(t.Context(), s.key)
		flying, err2 := calls.Peek(t.Context(), s.key)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		charged, inFlight = driver.MaxUnits-res.Remaining, stormCalls-flying.Remaining
		free = charged == s.used.Load() && inFlight == 0 ||
			time.Since(began) > stormHold+time.Second
	}
	servers.Measured("%s: %d calls, %d of them abandoned, %d settlements of %d ids answered, %d "+
		"requests failed, %d of %d charged, %d of them debt; free after %v", t.Name(),
		s.calls.Load(), s.abandon.Load(), s.repeated.Load(), s.settled.Load(), s.failed.Load(),
		charged, stormMoney, s.beyond.Load(), time.Since(began).Round(time.Millisecond))
	if used := s.used.Load(); charged != used || inFlight != 0 {
		t.Errorf("%d units are charged and %d calls in flight, want %d and none",
			charged, inFlight, used)
	}
	if charged > stormMoney+s.beyond.Load() {
		t.Errorf("%d units are charged, want at most %d and a debt of %d",
			charged, stormMoney, s.beyond.Load())
	}
}
