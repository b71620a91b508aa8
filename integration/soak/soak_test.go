package soak

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/faultproxy"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestSoak makes random demands from several processes under random faults, for as long as
// RATELIMIT_SOAK says, and checks the history of each key. RATELIMIT_SOAK_SEED repeats demands and
// faults of another run, but not their timing. RATELIMIT_SOAK_PLANT plants one of soakPlants, which
// the soak has to catch.
func TestSoak(t *testing.T) {
	lasting, err := time.ParseDuration(os.Getenv("RATELIMIT_SOAK"))
	if err != nil || lasting <= 0 {
		t.Skip("RATELIMIT_SOAK is not set to a duration")
	}
	seed := rand.Uint64()
	if text := os.Getenv("RATELIMIT_SOAK_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 16, 64); err != nil {
			t.Fatal(err)
		}
	}
	var newest []string // one of each kind of server
	for _, image := range servers.Images() {
		if image != "redis:7" || len(servers.Images()) == 1 {
			newest = append(newest, image)
		}
	}
	for i, image := range newest {
		t.Run(strings.ReplaceAll(image, "/", "-"), func(t *testing.T) {
			s := startSoak(t, image,
				soakOptions{seed: seed + uint64(i), plant: os.Getenv("RATELIMIT_SOAK_PLANT")})
			end := time.Now().Add(lasting / time.Duration(len(newest)))
			for number := 0; time.Now().Before(end) && !s.broken(); number++ {
				s.round(number, number%8 == 7)
			}
			s.finish()
			t.Logf("soak: %s: %s", image, s.tally)
		})
	}
}

// TestSoakCatches plants bugs, each of which the soak must catch within thirty rounds.
func TestSoakCatches(t *testing.T) {
	if os.Getenv("RATELIMIT_SOAK") == "" {
		t.Skip("RATELIMIT_SOAK is not set")
	}
	const most = 30
	image := servers.Newest()
	for _, bug := range slices.Sorted(maps.Keys(soakPlants)) {
		t.Run(bug, func(t *testing.T) {
			t.Parallel() // mostly waits for faults
			s := startSoak(t, image, soakOptions{seed: 1, plant: bug})
			begin := time.Now()
			number := 0
			for ; number < most && !s.broken(); number++ {
				s.round(number, soakPlants[bug].clock)
			}
			s.checks.Wait()
			if !s.broken() {
				t.Fatalf("the bug was not caught in %d rounds: %s", number, s.tally)
			}
			promise, _, _ := strings.Cut(s.violations[0].promise, "\n")
			t.Logf("caught after %v in round %d: %s", time.Since(begin).Round(time.Millisecond),
				number, promise)
		})
	}
}

// soakJudge is the number of the process that reads the states when all others are idle.
const soakJudge = -1

type soakOptions struct {
	seed  uint64
	plant string
}

// A soak runs processes on one server.
type soak struct {
	soakOptions
	rig       *soakRig
	processes []*soakProcess // the last of them may be killed
	started   int            // processes so far
	judge     ratelimit.Store
	begun     time.Time
	checks    sync.WaitGroup

	mu         sync.Mutex
	tally      soakTally
	violations []violation
}

// soakTally counts what happened.
type soakTally struct {
	lasted     time.Duration
	longest    time.Duration // longest check of a history
	seed       uint64
	rounds     int
	calls      int
	by         map[string]int // number of answers by source, and of errors
	faults     map[string]int
	histories  int
	undecided  int
	operations int
	cached     int
	violations int
}

func (s soakTally) String() string {
	return fmt.Sprintf("%v, seed %x, %d rounds; %d calls: %s; faults: %s; %d histories checked, "+
		"%d of them undecided, %d operations, %d cached refusals, at most %v for one; %d "+
		"violations",
		s.lasted.Round(time.Second), s.seed, s.rounds, s.calls, counts(s.by), counts(s.faults),
		s.histories, s.undecided, s.operations, s.cached, s.longest.Round(time.Millisecond),
		s.violations)
}

func counts(m map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d %s", m[name], name))
	}
	return strings.Join(parts, ", ")
}

// startSoak starts a server that loses no acknowledged write, and processes on each library, with
// and without a cache of refusals.
func startSoak(t *testing.T, image string, opts soakOptions) *soak {
	t.Helper()
	server := servers.StartClocked(t, image, "--appendonly", "yes", "--appendfsync",
		"always", "--save", "")
	control := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { control.Close() })
	s := &soak{
		soakOptions: opts, begun: time.Now(), rig: &soakRig{t: t, server: server, control: control},
		tally: soakTally{seed: opts.seed, by: map[string]int{}, faults: map[string]int{}},
	}
	s.judge = clients.GoRedis(control).
		NewStore(t, &serverstore.Options{Prefix: soakPrefix, Timeout: clients.Patient})
	for _, lib := range clients.Libraries {
		s.start(t, soakTask{Library: lib.Name})
		if lib.Caching != nil {
			s.start(t, soakTask{Library: lib.Name, Cached: true})
		}
	}
	s.start(t, soakTask{Library: clients.Libraries[0].Name, Killed: true})
	return s
}

// start starts a process behind a proxy of its own.
func (s *soak) start(t testing.TB, task soakTask) *soakProcess {
	t.Helper()
	proxy, err := faultproxy.Listen(s.rig.server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	s.rig.proxies = append(s.rig.proxies, proxy)
	task.Number, task.Addr, task.Plant = s.started, proxy.Addr(), s.plant
	s.started++
	p := startSoakProcess(t, task)
	s.processes = append(s.processes, p)
	return p
}

// broken reports whether a promise was broken so far.
func (s *soak) broken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.violations) > 0
}

// round runs one round and checks its calls in the background, after the check of the previous
// round.
func (s *soak) round(number int, clock bool) {
	t := s.rig.t
	t.Helper()
	round := soakRound{Seed: s.seed, Number: number, Clock: clock}
	var readers sync.WaitGroup
	var calls []soakCall
	begin := func(p *soakProcess) {
		s.tell(p, soakCommand{&round})
		readers.Go(func() {
			own, err := p.read()
			s.mu.Lock()
			defer s.mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			calls = append(calls, own...)
		})
	}
	for _, p := range s.processes {
		begin(p)
	}
	s.rig.killClient = func() {
		last := len(s.processes) - 1
		s.processes[last].kill(t)
		s.processes, s.rig.proxies = s.processes[:last], s.rig.proxies[:last]
		begin(s.start(t, soakTask{Library: clients.Libraries[number%len(clients.Libraries)].Name,
			Killed: true}))
	}
	s.rig.disturb(round, soakPlants[s.plant].fault, func(fault string) { s.tally.faults[fault]++ })
	for _, p := range s.processes {
		s.tell(p, soakCommand{})
	}
	readers.Wait()
	calls = append(calls, s.look(round)...)
	if clock {
		s.rig.server.SetClock(t, 0)
	}
	s.checks.Wait() // of the previous round
	s.tally.rounds++
	s.tally.calls += len(calls)
	for _, c := range calls {
		if c.Err != "" {
			s.tally.by[string(c.Err)]++
		} else {
			s.tally.by["from "+c.Results[0].Source.String()]++
		}
	}
	s.checks.Go(func() { s.check(round, calls) })
}

func (s *soak) tell(p *soakProcess, c soakCommand) {
	if err := p.Commands.Encode(c); err != nil {
		s.rig.t.Fatalf("%s: %v", p.task.name(), err)
	}
}

// look reads every state.
func (s *soak) look(round soakRound) (calls []soakCall) {
	for i, g := range round.groups() {
		for _, key := range g.keys {
			for _, a := range g.limits {
				d := driver.Demand{Key: key, Algorithm: a, Op: driver.OpPeek, N: 1}
				servers.Within(s.rig.t, func() bool {
					ds := []driver.Demand{d}
					c := soakCall{Process: soakJudge, Worker: s.started * soakWorkers, Group: i,
						Demands: soakDemands(ds)}
					c.decide(s.judge, ds, clients.Patient)
					calls = append(calls, c)
					return c.Err == ""
				}, "reading a state at the end of a round")
			}
		}
	}
	return calls
}

func (s *soak) check(round soakRound, calls []soakCall) {
	for i, g := range round.groups() {
		var own []soakCall
		for _, c := range calls {
			if c.Group == i {
				own = append(own, c)
			}
		}
		begin := time.Now()
		j := round.judge(g, own)
		s.mu.Lock()
		s.tally.longest = max(s.tally.longest, time.Since(begin))
		s.tally.histories++
		s.tally.operations += j.operations
		s.tally.cached += j.cached
		s.tally.violations += len(j.violations)
		if j.undecided {
			s.tally.undecided++
		}
		s.violations = append(s.violations, j.violations...)
		s.mu.Unlock()
		s.keep(round, i, own, len(j.violations) > 0)
		if len(j.violations) > 0 {
			return
		}
	}
}

// keep writes a history that broke a promise to the directory that TestSoakAgain reads.
func (s *soak) keep(round soakRound, group int, calls []soakCall, broken bool) {
	dir := os.Getenv(soakHistoriesEnv)
	if dir == "" || !broken {
		return
	}
	text, err := json.Marshal(soakHistory{round, group, calls})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir,
			fmt.Sprintf("%x-%d-%d.json", round.Seed, round.Number, group)), text, 0o600)
	}
	if err != nil {
		s.rig.t.Error(err)
	}
}

// soakHistoriesEnv names the directory of histories that broke a promise.
const soakHistoriesEnv = "RATELIMIT_SOAK_HISTORIES"

type soakHistory struct {
	Round soakRound
	Group int
	Calls []soakCall
}

// TestSoakAgain checks again the histories that soaks have written.
func TestSoakAgain(t *testing.T) {
	dir := os.Getenv(soakHistoriesEnv)
	if dir == "" {
		t.Skip(soakHistoriesEnv + " is not set")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			var h soakHistory
			text, err := os.ReadFile(file)
			if err == nil {
				err = json.Unmarshal(text, &h)
			}
			if err != nil {
				t.Fatal(err)
			}
			j := h.Round.judge(h.Round.groups()[h.Group], h.Calls)
			t.Logf("%d operations, %d of unknown outcome, undecided: %v",
				j.operations, j.unknown, j.undecided)
			for _, v := range j.violations {
				t.Error(v)
			}
		})
	}
}

// finish reports the violations.
func (s *soak) finish() {
	t := s.rig.t
	t.Helper()
	s.checks.Wait()
	s.tally.lasted = time.Since(s.begun)
	t.Logf("%s", s.tally)
	for _, v := range s.violations {
		t.Errorf("seed %x: %v", s.seed, v)
	}
	if s.tally.undecided*10 > s.tally.histories {
		t.Errorf("%d of %d histories are undecided, want at most a tenth",
			s.tally.undecided, s.tally.histories)
	}
}
