package integration

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

const (
	failoverLimit = 200 // of each key: more than is asked for before the fault, reached soon after it
	failoverHalf  = 100 // taken, and known to the replica, before there is traffic
	failoverPace  = 10 * time.Millisecond

	// answerSlack is what a busy machine may add to the 100ms in which a store answers, besides the time for which it is seen to stand still.
	answerSlack = 400 * time.Millisecond
	// returnTimeout is more than twice the 2s within which a client shall decide again. One that does not look for the new primary needs a minute.
	returnTimeout = 5 * time.Second
)

var failoverLog = algorithm.SlidingLog(ratelimit.PerDay(failoverLimit))

// eachImage runs f, as a subtest, on one image, and on all of them in a full run.
func eachImage(t *testing.T, one string, f func(t *testing.T, image string)) {
	t.Helper()
	on := images
	if !full && slices.Contains(images, one) {
		on = []string{one}
	}
	for _, image := range on {
		t.Run(strings.ReplaceAll(image, "/", "-"), func(t *testing.T) { f(t, image) })
	}
}

// A fault takes a primary from its clients and from the other nodes, so that its replica is elected, and gives it back.
type fault struct {
	name       string
	begin, end func(testing.TB, *pair)
}

var faults = []fault{
	{"kill", func(t testing.TB, p *pair) { p.primary.kill(t) }, func(t testing.TB, p *pair) { p.primary.start(t) }},
	{"pause", func(t testing.TB, p *pair) { p.primary.pause(t) }, func(t testing.TB, p *pair) { p.primary.unpause(t) }},
	{"disconnect", func(t testing.TB, p *pair) { p.disconnect(t) }, func(t testing.TB, p *pair) { p.connect(t) }},
}

// A pair is a primary and its replica.
type pair struct {
	of               string // such as "redis:8 cluster"
	primary, replica *server
	network          *testcontainers.DockerNetwork
	// elected tells whether the replica has become the primary.
	elected func(ctx context.Context, replica *redis.Client) (bool, error)
}

func (p *pair) String() string { return p.of }

// kind returns what p is part of, such as "cluster".
func (p *pair) kind() string { return strings.TrimPrefix(p.of, p.primary.image+" ") }

func (p *pair) disconnect(t testing.TB) {
	t.Helper()
	p.primary.fault(t, "disconnect", func(ctx context.Context, docker *testcontainers.DockerClient) error {
		_, err := docker.NetworkDisconnect(ctx, p.network.ID, client.NetworkDisconnectOptions{Container: p.primary.container.GetContainerID()})
		return err
	})
}

// connect gives the primary the address that it had.
func (p *pair) connect(t testing.TB) {
	t.Helper()
	ip := netip.MustParseAddrPort(p.primary.addr).Addr()
	p.primary.fault(t, "connect", func(ctx context.Context, docker *testcontainers.DockerClient) error {
		_, err := docker.NetworkConnect(ctx, p.network.ID, client.NetworkConnectOptions{
			Container:      p.primary.container.GetContainerID(),
			EndpointConfig: &network.EndpointSettings{IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: ip}},
		})
		return err
	})
}

// An asker asks for one kind of decision through one client, again and again, and keeps count.
type asker struct {
	ask    func(context.Context) (admitted bool, err error)
	struck *atomic.Bool
	since  *atomic.Int64 // the election, in nanoseconds since start

	start    time.Time
	began    atomic.Bool  // has had a decision
	returned atomic.Int64 // first decision after the election

	// of the goroutine that asks
	admitted, unknown, late int // late were admitted after the election
	longest, gap            time.Duration
	got                     got // from the fault to the first decision after the election
	wrong                   error
}

// standstill returns, when stop is closed, the longest time for which a goroutine that only looks at a clock was kept from it.
func standstill(stop <-chan struct{}) (longest time.Duration) {
	tick := time.NewTicker(failoverPace)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-stop:
			return longest
		case <-tick.C:
		}
		now := time.Now()
		longest, last = max(longest, now.Sub(last)-failoverPace), now
	}
}

func (a *asker) run(stop <-chan struct{}) {
	tick := time.NewTicker(failoverPace)
	defer tick.Stop()
	var last time.Time
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		began, lost := time.Now(), a.struck.Load() && a.returned.Load() == 0
		admitted, err := a.ask(context.Background())
		now := time.Now()
		if lost {
			a.got.count(err)
		}
		a.longest = max(a.longest, now.Sub(began))
		switch {
		case err == nil:
			if a.began.Load() {
				a.gap = max(a.gap, now.Sub(last))
			}
			a.began.Store(true)
			last = now
			if since := a.since.Load(); since != 0 && a.returned.Load() == 0 {
				a.returned.Store(max(1, int64(now.Sub(a.start))-since))
			}
			if admitted {
				a.admitted++
				if a.since.Load() != 0 {
					a.late++
				}
			}
		case errors.Is(err, ratelimit.ErrOutcomeUnknown):
			a.unknown++
		case !errors.Is(err, ratelimit.ErrUnavailable):
			a.wrong = err
		}
	}
}

// exhaust asks until nothing is admitted any more.
func (a *asker) exhaust(t testing.TB, ask func(context.Context) (bool, error)) {
	t.Helper()
	for must(t, 1, ask) > 0 {
		a.admitted++
		a.late++
	}
}

// A party is one client of a failover, and what it asks for: keys of the server that is lost, each in a slot of its own, and one of another.
type party struct {
	name  string
	store ratelimit.Store
	keys  failoverKeys

	own, calm, shared, group, elsewhere *asker // calm has no traffic
}

// failoverKeys are keys of the server that is lost, but for elsewhere, which is empty where there is no other server.
type failoverKeys struct {
	own, calm, shared string
	group             [2]string // of one slot
	elsewhere         string
}

func (k failoverKeys) lost() []string {
	return []string{k.own, k.calm, k.shared, k.group[0], k.group[1]}
}

// tagged has "a/1" and "a/2" in the same slot.
func tagged(key string) string {
	tag, _, _ := strings.Cut(key, "/")
	return tag
}

func failoverTake(key string) ratelimit.Demand {
	return ratelimit.Demand{Key: key, Algorithm: failoverLog, N: 1}
}

func one(s ratelimit.Store, key string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		res, err := s.Take(ctx, failoverTake(key))
		return res.Allowed, err
	}
}

func both(s ratelimit.Store, keys [2]string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		var out [2]ratelimit.Result
		err := s.TakeAll(ctx, []ratelimit.Demand{failoverTake(keys[0]), failoverTake(keys[1])}, out[:])
		return err == nil && out[0].Allowed && out[1].Allowed, err
	}
}

// must asks n times, and returns how many were admitted.
func must(t testing.TB, n int, ask func(context.Context) (bool, error)) (admitted int) {
	t.Helper()
	for range n {
		began := time.Now()
		ok, err := ask(t.Context())
		if err != nil {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		if ok {
			admitted++
		}
	}
	return admitted
}

// used returns how many units of key are recorded, were they more than the limit.
func used(t testing.TB, s ratelimit.Store, key string) int {
	t.Helper()
	res, err := s.Take(t.Context(), ratelimit.Demand{Key: key, Algorithm: algorithm.SlidingLog(ratelimit.PerDay(1 << 20)), Op: ratelimit.Look, N: 1})
	if err != nil {
		t.Fatal(err)
	}
	return int(res.Limit - res.Remaining)
}

// A failover is what befell a primary while clients asked for decisions.
type failover struct {
	fault
	pair     *pair
	parties  []*party
	after    ratelimit.Store // on the new primary alone, and patient
	election time.Duration   // from the fault
	still    time.Duration   // how long the machine stood still, known when the traffic has ended
	heal     func()
	halt     func() // ends the traffic
}

// strike lets f befall p while clients with dialing d ask for decisions, and holds that the replica soon decides for all of them. The
// traffic goes on and the fault stays until finish. keys returns the keys of a client; shared is the same for all.
func strike(t *testing.T, f fault, p *pair, d dialing, keys func(t testing.TB, name string) failoverKeys) *failover {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	prefix := uniquePrefix()
	var struckYet atomic.Bool
	var since atomic.Int64
	begin := time.Now()
	newAsker := func(ask func(context.Context) (bool, error)) *asker {
		return &asker{ask: ask, struck: &struckYet, since: &since, start: begin}
	}
	hasty := redisstore.Options{Prefix: prefix, Tag: tagged}
	var parties []*party
	for _, lib := range libraries {
		parties = append(parties, &party{name: lib.name, store: lib.client(t, d).newStore(t, &hasty)})
		if lib.caching != nil {
			parties = append(parties, &party{name: lib.name + "-cached", store: lib.caching(d).store(t, &hasty)})
		}
	}
	// Before and after the fault nobody shall be disturbed by a busy machine, so that all is counted.
	calm := redisstore.Options{Prefix: prefix, Tag: tagged, Timeout: patient}
	before := calmStore(t, &target{addrs: []string{p.primary.addr}}, &calm)
	for _, q := range parties {
		q.keys = keys(t, q.name)
		q.own, q.shared, q.group = newAsker(one(q.store, q.keys.own)), newAsker(one(q.store, q.keys.shared)), newAsker(both(q.store, q.keys.group))
		must(t, failoverHalf, one(before, q.keys.own))
		q.calm = newAsker(nil)
		must(t, failoverHalf, one(before, q.keys.calm))
		must(t, failoverHalf/len(parties), one(before, q.keys.shared))
		must(t, failoverHalf, both(before, q.keys.group))
		if q.keys.elsewhere != "" {
			q.elsewhere = newAsker(one(q.store, q.keys.elsewhere))
		}
	}
	replicated(t, p, prefix, parties[0].keys.calm)

	stop := make(chan struct{})
	var wg sync.WaitGroup
	fo := &failover{fault: f, pair: p, parties: parties, after: calmStore(t, &target{addrs: []string{p.replica.addr}}, &calm)}
	fo.halt = sync.OnceFunc(func() { close(stop); wg.Wait() })
	t.Cleanup(fo.halt)
	wg.Go(func() { fo.still = standstill(stop) })
	var askers []*asker
	for _, q := range parties {
		for _, a := range []*asker{q.own, q.shared, q.group, q.elsewhere} {
			if a != nil {
				askers = append(askers, a)
				wg.Go(func() { a.run(stop) })
			}
		}
	}
	idle := func(a *asker) bool { return !a.began.Load() }
	if err := poll(ctx, func() (bool, error) { return !slices.ContainsFunc(askers, idle), nil }); err != nil {
		t.Fatal("the fault would meet no traffic: not all clients are given a decision")
	}

	replica := newCalm(t, p.replica.addr)
	struck := time.Now()
	f.begin(t, p)
	struckYet.Store(true)
	fo.heal = sync.OnceFunc(func() { f.end(t, p) })
	t.Cleanup(fo.heal) // for the next fault
	if err := poll(ctx, func() (bool, error) { return p.elected(ctx, replica) }); err != nil {
		t.Fatalf("waiting for the election: %v", err)
	}
	since.Store(int64(time.Since(begin)))
	fo.election = time.Since(struck)

	back, cancel := context.WithTimeout(ctx, returnTimeout)
	defer cancel()
	for _, q := range parties {
		if err := poll(back, func() (bool, error) {
			return q.own.returned.Load() != 0 && q.shared.returned.Load() != 0 && q.group.returned.Load() != 0, nil
		}); err != nil {
			t.Errorf("%s decides nothing %v after the election", q.name, returnTimeout)
		}
	}
	for _, q := range parties {
		if !t.Failed() {
			q.calm.exhaust(t, one(fo.after, q.keys.calm))
		}
	}
	return fo
}

// finish waits for the old primary to follow the new one, and holds that all calls were answered in time, and that no more was admitted than the
// limits say and the replica had not heard of.
func (fo *failover) finish(t *testing.T) {
	t.Helper()
	if t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fo.heal()
	old := newCalm(t, fo.pair.primary.addr)
	if err := poll(ctx, func() (bool, error) {
		ok, _ := inSync(ctx, old) // it may not answer yet
		return ok, nil
	}); err != nil {
		t.Fatalf("waiting for the old primary to follow the new one: %v", err)
	}
	fo.halt()
	for _, q := range fo.parties { // whatever the traffic has left
		q.own.exhaust(t, one(fo.after, q.keys.own))
		q.shared.exhaust(t, one(fo.after, q.keys.shared))
		q.group.exhaust(t, both(fo.after, q.keys.group))
	}
	fo.judge(t)
}

func (fo *failover) judge(t *testing.T) {
	t.Helper()
	shared := failoverHalf / len(fo.parties) * len(fo.parties)
	for _, q := range fo.parties {
		asked := []*asker{q.own, q.shared, q.group}
		var longest, returned time.Duration
		for _, a := range asked {
			longest = max(longest, a.longest)
			returned = max(returned, time.Duration(a.returned.Load()))
			if a.wrong != nil {
				t.Errorf("%s: %v, want ErrUnavailable or ErrOutcomeUnknown", q.name, a.wrong)
			}
		}
		others := ""
		if q.elsewhere != nil {
			longest = max(longest, q.elsewhere.longest)
			others = fmt.Sprintf(", longest gap on another primary %v", q.elsewhere.gap.Round(time.Millisecond))
		}
		ran.measured("%s %s, %s: longest answer %v (the machine stood still for %v), elected after %v, first decision %v later, admitted/limit %d/%d (%d unknown), without traffic %d/%d%s",
			fo.pair, fo.name, q.name, longest.Round(time.Millisecond), fo.still.Round(time.Millisecond), fo.election.Round(10*time.Millisecond), returned.Round(time.Millisecond),
			failoverHalf+q.own.admitted, failoverLimit, q.own.unknown, failoverHalf+q.calm.admitted, failoverLimit, others)
		faultTable.add(faultRow{
			fault: failoverName(fo.pair.kind(), fo.fault), client: q.name, image: fo.pair.primary.image,
			got: q.own.got.plus(q.shared.got).plus(q.group.got), slowest: longest,
			admitted: failoverHalf + q.own.admitted, unknown: q.own.unknown, recorded: used(t, fo.after, q.keys.own), forgets: "the failover",
			normal: returned, election: fo.election,
		})
		if longest > 100*time.Millisecond+answerSlack+2*fo.still {
			t.Errorf("%s: an answer took %v, on a machine that stood still for %v", q.name, longest, fo.still)
		}
		if n := failoverHalf + q.calm.admitted; n != failoverLimit {
			t.Errorf("%s: %d admitted of a key that the replica knew all of, want %d", q.name, n, failoverLimit)
		}
		// What the replica knew and what it admitted itself.
		for what, n := range map[string]int{"own": failoverHalf + q.own.late, "group": failoverHalf + q.group.late} {
			if n > failoverLimit {
				t.Errorf("%s: the new primary admitted up to %d of the %s key, limit %d", q.name, n, what, failoverLimit)
			}
		}
		shared += q.shared.late
		for _, key := range q.keys.lost() {
			if n := used(t, fo.after, key); n != failoverLimit {
				t.Errorf("%s: %d units of a key are recorded, want %d", q.name, n, failoverLimit)
			}
		}
	}
	if shared > failoverLimit {
		t.Errorf("the new primary admitted up to %d of the shared key, limit %d", shared, failoverLimit)
	}
}

// replicated returns when the replica has what the primary has by now. key is one that it may write to.
func replicated(t testing.TB, p *pair, prefix, key string) {
	t.Helper()
	conn := newCalm(t, p.primary.addr).Conn()
	defer conn.Close()
	if err := conn.Set(t.Context(), prefix+"{="+key+"}mark", 1, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Wait(t.Context(), 1, faultTimeout).Result(); err != nil || n != 1 {
		t.Fatalf("%d replicas have followed: %v", n, err)
	}
}

// TestClusterFailover loses each primary of a cluster in another way.
func TestClusterFailover(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	eachImage(t, "redis:8", func(t *testing.T, image string) {
		cl := startClusterOf(t, image, 2*clusterPrimaries, "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0")
		d := dialing{addrs: cl.addrs(), cluster: true, prompt: true}
		for i, f := range faults {
			if !t.Run(f.name, func(t *testing.T) {
				p := &pair{of: image + " cluster", primary: cl.nodes[i], replica: cl.nodes[i+clusterPrimaries], network: cl.network, elected: servesSlots}
				lost, elsewhere := clusterKeys(t, cl, i), clusterKeys(t, cl, (i+1)%clusterPrimaries)
				shared := lost("shared")
				strike(t, f, p, d, func(t testing.TB, name string) failoverKeys {
					tag := lost(name)
					return failoverKeys{own: lost(name), calm: lost(name), shared: shared, group: [2]string{tag + "/1", tag + "/2"}, elsewhere: elsewhere(name)}
				}).finish(t)
			}) {
				return
			}
		}
	})
}

// servesSlots tells whether a node of a cluster says that it is a primary with slots, and that the cluster is complete.
func servesSlots(ctx context.Context, node *redis.Client) (bool, error) {
	nodes, err := node.ClusterNodes(ctx).Result()
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(nodes) {
		if fields := strings.Fields(line); strings.Contains(line, "myself") {
			return strings.Contains(fields[2], "master") && len(fields) > 8, nil
		}
	}
	return false, nil
}

// clusterKeys returns a function that returns keys in the slots that a cluster's i-th primary began with.
func clusterKeys(t testing.TB, cl *cluster, i int) func(name string) string {
	t.Helper()
	node := newCalm(t, cl.nodes[(i+1)%clusterPrimaries].addr)
	return func(name string) string {
		for {
			key := fmt.Sprintf("%s-%d", name, freshKeys.Add(1))
			slot, err := node.ClusterKeySlot(t.Context(), "{="+key+"}").Result()
			if err != nil {
				t.Fatal(err)
			}
			if from, to := i*clusterSlots/clusterPrimaries, (i+1)*clusterSlots/clusterPrimaries; from <= int(slot) && int(slot) < to {
				return key
			}
		}
	}
}
