package leases

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

const (
	members   = 8
	window    = 10 * time.Second
	leaseLoss = 0.1
	lead      = time.Duration(leaseLoss / 2 * float64(window))
	excessive = 1.2 // demand ÷ limit
)

// limits are a minute's in windows of ten seconds. The first is too small for leases.
var limits = []ratelimit.Limit{
	{Name: "600", Max: 600 / 6, Window: window},
	{Name: "6k", Max: 6_000 / 6, Window: window},
	{Name: "60k", Max: 60_000 / 6, Window: window},
	{Name: "1M", Max: 1_000_000 / 6, Window: window},
}

// A fleet is processes that share the limits.
type fleet struct {
	t       *testing.T
	task    memberTask
	mixed   bool // every second process has no leases
	dir     string
	r       *rand.Rand
	members [members]*servers.Process
	files   []string
	taken   []admission // by halt

	stops, kills, cuts, pauses int
	failedOver                 []time.Time // when a primary was lost
}

func newFleet(t *testing.T, addrs []string, cluster, mixed bool) *fleet {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	f := &fleet{t: t, mixed: mixed, dir: t.TempDir(), r: rand.New(rand.NewPCG(seed, 1)),
		task: memberTask{Addrs: addrs, Cluster: cluster, Prefix: servers.UniquePrefix(),
			Limits: limits}}
	for _, l := range limits {
		f.task.Rates = append(f.task.Rates, excessive*float64(l.Max)/window.Seconds()/members)
	}
	for i := range f.members {
		f.start(i)
	}
	return f
}

func (f *fleet) start(i int) {
	task := f.task
	task.Library = clients.Libraries[i/2%len(clients.Libraries)].Name
	task.Leases = !f.mixed || i%2 == 0
	task.File = filepath.Join(f.dir, fmt.Sprint(len(f.files)))
	f.files = append(f.files, task.File)
	f.members[i] = servers.StartProcess(f.t, memberEnv, task)
}

// halt makes all processes stand still for longer than a window, and takes all that is free
// meanwhile. Their leases end in that time: otherwise they exceed the limits when they go on.
func (f *fleet) halt(store ratelimit.Store) {
	f.signal(syscall.SIGSTOP)
	f.stops += members
	for end := time.Now().Add(window + 2*lead); time.Now().Before(end); time.Sleep(memberTick) {
		for i, l := range limits {
			begin := time.Now().UnixNano()
			res, err := store.Take(f.t.Context(), driver.Demand{Key: "key",
				Algorithm: algorithm.SlidingLog(l), N: l.Max, Least: 1})
			if err != nil {
				f.t.Fatal(err)
			}
			if res.Allowed {
				f.taken = append(f.taken,
					admission{begin, time.Now().UnixNano(), int64(i), res.Units})
			}
		}
	}
	f.signal(syscall.SIGCONT)
}

func (f *fleet) signal(s syscall.Signal) {
	for _, m := range f.members {
		if err := m.Cmd.Process.Signal(s); err != nil {
			f.t.Fatal(err)
		}
	}
}

// stop makes one process, or all, stand still for up to four leads.
func (f *fleet) stop() {
	first, n := f.r.IntN(members), 1
	if f.r.IntN(4) == 0 {
		first, n = 0, members
	}
	length := time.Duration(f.r.Int64N(int64(4 * lead)))
	for _, m := range f.members[first : first+n] {
		if err := m.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			f.t.Fatal(err)
		}
		f.stops++
		time.AfterFunc(length, func() {
			_ = m.Cmd.Process.Signal(syscall.SIGCONT) // it may have been killed
		})
	}
}

// kill ends a process at once and starts another in its place.
func (f *fleet) kill() {
	i := f.r.IntN(members)
	if err := f.members[i].Cmd.Process.Kill(); err != nil {
		f.t.Fatal(err)
	}
	_ = f.members[i].Cmd.Wait()
	f.kills++
	f.start(i)
}

// disturb causes faults for a while.
func (f *fleet) disturb(server *redis.Client, length time.Duration) {
	ctx, end := f.t.Context(), time.Now().Add(length)
	for time.Now().Before(end) {
		time.Sleep(time.Duration(100+f.r.IntN(400)) * time.Millisecond)
		switch kind := f.r.IntN(12); {
		case kind < 6:
			f.stop()
		case kind < 8:
			f.kill()
		case server == nil:
		case kind < 10:
			if err := server.ClientKillByFilter(ctx, "TYPE", "normal").Err(); err != nil {
				f.t.Fatal(err)
			}
			f.cuts++
		default:
			length := time.Duration(f.r.Int64N(int64(lead)))
			if err := server.ClientPause(ctx, length).Err(); err != nil {
				f.t.Fatal(err)
			}
			f.pauses++
		}
	}
}

// finish ends the processes and checks what they were admitted. It returns the limits, large enough
// for leases, of which leases have admitted too little to try them.
func (f *fleet) finish() (untried []string) {
	t := f.t
	f.signal(syscall.SIGCONT)
	sums := make([]memberStats, len(limits))
	for i, p := range f.members {
		p.Stdin.Close()
		var all []memberStats
		if err := p.Answers.Decode(&all); err != nil {
			t.Fatal(err)
		}
		if err := p.Cmd.Wait(); err != nil {
			t.Error(err)
		}
		for k, s := range all {
			if !f.mixed || i%2 == 0 {
				sums[k].Decisions += s.Decisions
				sums[k].Calls += s.Calls
				sums[k].Leased.Admitted += s.Leased.Admitted
				sums[k].Leased.Taken += s.Leased.Taken
				sums[k].Leased.Lost += s.Leased.Lost
			}
		}
	}
	all := f.taken
	for _, name := range f.files {
		more, err := readAdmissions(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, more...)
	}
	admissions := make([][]admission, len(limits))
	for _, a := range all {
		admissions[a.limit] = append(admissions[a.limit], a)
	}
	servers.Measured("%s: %d processes stopped, %d killed, all connections cut %d times, the "+
		"server paused %d times, %d primaries lost", t.Name(), f.stops, f.kills, f.cuts, f.pauses,
		len(f.failedOver))
	for k, limit := range limits {
		all, s := admissions[k], sums[k]
		most := mostInWindow(slices.DeleteFunc(slices.Clone(all), f.mayBeLost))
		worst := float64(most) / float64(limit.Max)
		p50, p99 := quantiles(all)
		line := fmt.Sprintf("%s, %s: worst window ÷ Max %.4f of %d admitted; calls of the store a "+
			"decision %.4f of %d; an admission took %v, 99 %% at most %v; of %d units taken ahead "+
			"%d were lost", t.Name(), limit.Name, worst, len(all),
			float64(s.Calls)/float64(max(1, s.Decisions)), s.Decisions, p50, p99, s.Leased.Taken,
			s.Leased.Lost)
		t.Log(line)
		servers.Measured("%s", line)
		if most > limit.Max {
			t.Errorf("%s: %d units are in one window, want at most %d", limit.Name, most, limit.Max)
		}
		if least := limit.Max / 100; limit.Max >= 10_000 && s.Leased.Admitted < least {
			untried = append(untried, fmt.Sprintf("%s: leases have admitted %d units, want at "+
				"least %d to try them", limit.Name, s.Leased.Admitted, least))
		}
	}
	return untried
}

// mayBeLost reports whether a new primary may not know of a, or of the lease that it came from.
func (f *fleet) mayBeLost(a admission) bool {
	return slices.ContainsFunc(f.failedOver, func(at time.Time) bool {
		return a.end > at.Add(-lead-time.Second).UnixNano() && a.begin <= at.Add(lead).UnixNano()
	})
}

// mostInWindow returns the most units that certainly were in one window. Servers have clocks of
// whole microseconds.
func mostInWindow(all []admission) (most int64) {
	all = slices.DeleteFunc(all, func(a admission) bool { return a.end-a.begin >= int64(window)/2 })
	byBegin, byEnd := slices.Clone(all), all
	slices.SortFunc(byBegin, func(a, b admission) int { return cmp.Compare(a.begin, b.begin) })
	slices.SortFunc(byEnd, func(a, b admission) int { return cmp.Compare(a.end, b.end) })
	begun, ended := int64(0), int64(0)
	for _, first := range byBegin { // what began before has ended before its window ends
		for len(byEnd) > 0 && byEnd[0].end < first.begin+int64(window-time.Microsecond) {
			ended += byEnd[0].units
			byEnd = byEnd[1:]
		}
		most = max(most, ended-begun)
		begun += first.units
	}
	return most
}

// quantiles returns the time that half of the admissions took at most, and 99 % of them.
func quantiles(all []admission) (p50, p99 time.Duration) {
	if len(all) == 0 {
		return 0, 0
	}
	took := make([]int64, len(all))
	for i, a := range all {
		took[i] = a.end - a.begin
	}
	slices.Sort(took)
	return time.Duration(took[len(took)/2]), time.Duration(took[len(took)*99/100])
}

// TestLeasesOfProcesses: no window of any limit has more than Max units, whatever happens to
// processes and connections. On a busy machine leases may end before they are used, so it has up to
// three fleets.
func TestLeasesOfProcesses(t *testing.T) {
	servers.EachImage(t, func(t *testing.T, image string) {
		t.Parallel() // it mostly waits
		for _, mixed := range []bool{false, true} {
			if !depth.Full && mixed != (image == servers.Newest()) {
				continue
			}
			name := "all with leases"
			if mixed {
				name = "every second with leases"
			}
			t.Run(name, func(t *testing.T) {
				servers.CountTest(t, image)
				server := servers.Start(t, image)
				var untried []string
				for range 3 {
					f := newFleet(t, []string{server.Addr}, false, mixed)
					f.disturb(servers.Connect(t, server.Addr),
						depth.Of(24*time.Second, 84*time.Second))
					time.Sleep(5 * lead) // for stopped processes to go on, and have leases
					f.halt(clients.CalmStore(t, &servers.Target{Addrs: []string{server.Addr}},
						&serverstore.Options{Prefix: f.task.Prefix, Timeout: clients.Patient}))
					time.Sleep(2 * lead)
					if untried = f.finish(); untried == nil {
						return
					}
				}
				t.Error(strings.Join(untried, "\n"))
			})
		}
	})
}

// TestLeasesInCluster: if primaries are lost, no window has more units than Max and those that the
// new primary may not know of.
func TestLeasesInCluster(t *testing.T) {
	if !depth.Full {
		t.Skip("at full depth only")
	}
	servers.EachImage(t, func(t *testing.T, image string) {
		servers.CountTest(t, image+" cluster")
		cl := servers.StartClusterOf(t, image, 2*servers.ClusterPrimaries,
			"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0")
		f := newFleet(t, cl.Addrs(), true, false)
		for i := range servers.ClusterPrimaries {
			f.disturb(nil, 25*time.Second)
			old := cl.Nodes[i]
			replica := servers.Connect(t, cl.Nodes[i+servers.ClusterPrimaries].Addr)
			f.failedOver = append(f.failedOver, time.Now())
			old.Kill(t)
			servers.Await(t, func() (bool, error) {
				role, err := replica.Do(t.Context(), "ROLE").Slice()
				return err == nil && role[0] == "master", nil
			})
			old.Start(t)
		}
		f.disturb(nil, 25*time.Second)
		if untried := f.finish(); untried != nil {
			t.Error(strings.Join(untried, "\n"))
		}
	})
}
