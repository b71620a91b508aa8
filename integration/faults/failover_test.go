package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

const (
	// of each key: more than is taken before the fault, reached soon after it
	failoverLimit = 200
	failoverHalf  = 100 // taken, and received by the replica, before there is traffic
	failoverPace  = 10 * time.Millisecond
	// returnTimeout is more than twice the 2s within which a client has to decide again. A client
	// that does not look for the new primary needs a minute.
	returnTimeout = 5 * time.Second
	// electionTimeout is long, since Sentinels that a busy machine stops for two seconds do nothing
	// for the next thirty.
	electionTimeout = 5 * time.Minute
)

var failoverLog = algorithm.SlidingLog(ratelimit.PerDay("day", failoverLimit))

// A fault makes a primary unreachable for its clients and the other nodes, so that its replica is
// elected. end makes it reachable again.
type fault struct {
	name       string
	begin, end func(testing.TB, *servers.Pair)
}

var faults = []fault{
	{"kill", func(t testing.TB, p *servers.Pair) { p.Primary.Kill(t) },
		func(t testing.TB, p *servers.Pair) { p.Primary.Start(t) }},
	{"pause", func(t testing.TB, p *servers.Pair) { p.Primary.Pause(t) },
		func(t testing.TB, p *servers.Pair) { p.Primary.Unpause(t) }},
	{"disconnect", func(t testing.TB, p *servers.Pair) { p.Disconnect(t) },
		func(t testing.TB, p *servers.Pair) { p.Connect(t) }},
}

// An asker requests one kind of decision through one client again and again, and counts the
// outcomes.
type asker struct {
	ask    func(context.Context) (admitted bool, err error)
	struck *atomic.Bool
	since  *atomic.Int64 // the election, in nanoseconds since start

	start    time.Time
	began    atomic.Bool  // there was a decision
	returned atomic.Int64 // first decision after the election

	// used by the goroutine of run only
	admitted, unknown, late int // late were admitted after the election
	longest, gap            time.Duration
	got                     got // from the fault to the first decision after the election
	wrong                   error
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
		lost := a.struck.Load() && a.returned.Load() == 0
		took := servers.TimeAnswer(defaultTimeout)
		admitted, err := a.ask(context.Background())
		a.longest = max(a.longest, took())
		now := time.Now()
		if lost {
			a.got.count(err)
		}
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

// exhaust takes units until one is refused.
func (a *asker) exhaust(t testing.TB, ask func(context.Context) (bool, error)) {
	t.Helper()
	for must(t, 1, ask) > 0 {
		a.admitted++
		a.late++
	}
}

// A party is one client of a failover with its askers: on keys of the server that is lost, each in
// a slot of its own, and on one key of another server.
type party struct {
	name  string
	store ratelimit.Store
	keys  failoverKeys

	own, calm, shared, group, elsewhere *asker // calm has no traffic
}

// failoverKeys are keys of the server that is lost. elsewhere is a key of another server, or empty
// if there is none.
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

func failoverTake(key string) driver.Demand {
	return driver.Demand{Key: key, Algorithm: failoverLog, N: 1}
}

func one(s ratelimit.Store, key string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		res, err := s.Take(ctx, failoverTake(key))
		return err == nil && res.Allowed, err
	}
}

func both(s ratelimit.Store, keys [2]string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		var out [2]ratelimit.Result
		err := s.TakeAll(ctx, []driver.Demand{failoverTake(keys[0]), failoverTake(keys[1])},
			out[:])
		return err == nil && out[0].Allowed && out[1].Allowed, err
	}
}

// must calls ask n times, and returns how many were admitted.
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

// used returns how many units of key are recorded, even if they are more than the limit.
func used(t testing.TB, s ratelimit.Store, key string) int {
	t.Helper()
	res, err := s.Take(t.Context(),
		driver.Demand{Key: key, Algorithm: algorithm.SlidingLog(ratelimit.PerDay("day", 1<<20)),
			Op: driver.OpPeek, N: 1})
	if err != nil {
		t.Fatal(err)
	}
	return int(res.Limit.Max - res.Remaining)
}

// A failover is the loss of a primary under traffic.
type failover struct {
	fault
	pair     *servers.Pair
	parties  []*party
	after    ratelimit.Store // on the new primary alone, and patient
	election time.Duration   // from the fault
	still    time.Duration   // how long the machine stood still, set when the traffic has ended
	heal     func()
	halt     func() // ends the traffic
}

// strike begins f on p under the traffic of clients with dialing d, and fails unless the replica
// soon decides for all of them. The traffic and the fault last until finish. keys returns the keys
// of a client; shared is the same for all.
func strike(
	t *testing.T, f fault, p *servers.Pair, d clients.Dialing,
	keys func(t testing.TB, name string) failoverKeys,
) *failover {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), electionTimeout)
	defer cancel()
	prefix := servers.UniquePrefix()
	var struckYet atomic.Bool
	var since atomic.Int64
	begin := time.Now()
	newAsker := func(ask func(context.Context) (bool, error)) *asker {
		return &asker{ask: ask, struck: &struckYet, since: &since, start: begin}
	}
	hasty := serverstore.Options{Prefix: prefix, Tag: tagged}
	var parties []*party
	for _, lib := range clients.Libraries {
		parties = append(parties,
			&party{name: lib.Name, store: lib.Client(t, d).NewStore(t, &hasty)})
		if lib.Caching != nil {
			parties = append(parties,
				&party{name: lib.Name + "-cached", store: lib.Caching(d).Store(t, &hasty)})
		}
	}
	// Before and after the fault a long timeout makes sure that every unit is counted on a busy
	// machine.
	calm := serverstore.Options{Prefix: prefix, Tag: tagged, Timeout: clients.Patient}
	before := clients.CalmStore(t, &servers.Target{Addrs: []string{p.Primary.Addr}}, &calm)
	for _, q := range parties {
		q.keys = keys(t, q.name)
		q.own, q.shared, q.group = newAsker(one(q.store, q.keys.own)),
			newAsker(one(q.store, q.keys.shared)), newAsker(both(q.store, q.keys.group))
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
	target := &servers.Target{Addrs: []string{p.Replica.Addr}}
	fo := &failover{fault: f, pair: p, parties: parties, after: clients.CalmStore(t, target, &calm)}
	still := servers.WatchStandstill()
	fo.halt = sync.OnceFunc(func() { close(stop); wg.Wait(); fo.still = still() })
	t.Cleanup(fo.halt)
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
	if err := servers.Poll(ctx,
		func() (bool, error) { return !slices.ContainsFunc(askers, idle), nil }); err != nil {
		t.Fatal("there is no traffic before the fault: not all clients have had a decision")
	}

	replica := servers.Connect(t, p.Replica.Addr)
	struck := time.Now()
	f.begin(t, p)
	struckYet.Store(true)
	fo.heal = sync.OnceFunc(func() { f.end(t, p) })
	t.Cleanup(fo.heal) // for the next fault
	if err := servers.Poll(ctx,
		func() (bool, error) { return p.Elected(ctx, replica) }); err != nil {
		t.Fatalf("waiting for the election: %v", err)
	}
	since.Store(int64(time.Since(begin)))
	fo.election = time.Since(struck)
	if p.Announced != nil { // a Sentinel that a busy machine stopped learns of it late
		if err := servers.Poll(ctx,
			func() (bool, error) { return p.Announced(ctx), nil }); err != nil {
			t.Fatalf("waiting for the Sentinels to name the new primary: %v", err)
		}
	}

	back, cancel := context.WithTimeout(ctx, servers.FaultTimeout)
	defer cancel()
	for _, q := range parties {
		if err := servers.Poll(back, func() (bool, error) {
			return q.own.returned.Load() != 0 && q.shared.returned.Load() != 0 &&
				q.group.returned.Load() != 0, nil
		}); err != nil {
			t.Errorf("%s decides nothing %v after the election", q.name, servers.FaultTimeout)
		}
	}
	for _, q := range parties {
		if !t.Failed() {
			q.calm.exhaust(t, one(fo.after, q.keys.calm))
		}
	}
	return fo
}

// finish ends the fault and waits until the old primary follows the new one. It fails if
// more was admitted than the limit and what the replica had not received. What took too long goes
// to late.
func (fo *failover) finish(t *testing.T, late *lateness) {
	t.Helper()
	if t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), electionTimeout)
	defer cancel()
	fo.heal()
	old := servers.Connect(t, fo.pair.Primary.Addr)
	if err := servers.Poll(ctx, func() (bool, error) {
		ok, _ := servers.InSync(ctx, old) // it may not answer yet
		return ok, nil
	}); err != nil {
		t.Fatalf("waiting for the old primary to follow the new one: %v", err)
	}
	fo.halt()
	for _, q := range fo.parties { // take what the traffic has left
		q.own.exhaust(t, one(fo.after, q.keys.own))
		q.shared.exhaust(t, one(fo.after, q.keys.shared))
		q.group.exhaust(t, both(fo.after, q.keys.group))
	}
	fo.judge(t, late)
}

func (fo *failover) judge(t *testing.T, late *lateness) {
	t.Helper()
	late.still = fo.still
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
			others = fmt.Sprintf(", longest gap on another primary %v",
				q.elsewhere.gap.Round(time.Millisecond))
		}
		servers.Measured("%s %s, %s: longest answer %v (the machine stood still for %v), elected "+
			"after %v, first decision %v later, admitted/limit %d/%d (%d unknown), without "+
			"traffic %d/%d%s",
			fo.pair, fo.name, q.name, longest.Round(time.Millisecond),
			fo.still.Round(time.Millisecond), fo.election.Round(10*time.Millisecond),
			returned.Round(time.Millisecond),
			failoverHalf+q.own.admitted, failoverLimit, q.own.unknown, failoverHalf+q.calm.admitted,
			failoverLimit, others)
		faultTable.add(faultRow{
			fault: failoverName(fo.pair.Kind(), fo.fault), client: q.name,
			image: fo.pair.Primary.Image,
			got:   q.own.got.plus(q.shared.got).plus(q.group.got), slowest: longest,
			admitted: failoverHalf + q.own.admitted, unknown: q.own.unknown,
			recorded: used(t, fo.after, q.keys.own),
			normal:   returned, election: fo.election,
		})
		if returned > servers.LatestAnswer(returnTimeout, fo.still) {
			late.errorf("%s: the first decision came %v after the election", q.name, returned)
		}
		if longest > servers.LatestAnswer(defaultTimeout, fo.still) {
			late.errorf("%s: an answer took %v", q.name, longest)
		}
		if n := failoverHalf + q.calm.admitted; n != failoverLimit {
			t.Errorf("%s: %d admitted of a key that the replica had received completely, want %d",
				q.name, n, failoverLimit)
		}
		// What the replica had received and what it admitted itself.
		for what, n := range map[string]int{"own": failoverHalf + q.own.late,
			"group": failoverHalf + q.group.late} {
			if n > failoverLimit {
				t.Errorf("%s: the new primary admitted up to %d of the %s key, limit %d",
					q.name, n, what, failoverLimit)
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
		t.Errorf("the new primary admitted up to %d of the shared key, limit %d",
			shared, failoverLimit)
	}
}

// replicated returns when the replica has received all that the primary has now. It writes to a key
// in the slot of key.
func replicated(t testing.TB, p *servers.Pair, prefix, key string) {
	t.Helper()
	conn := servers.Connect(t, p.Primary.Addr).Conn()
	defer conn.Close()
	if err := conn.Set(t.Context(), prefix+"{="+key+"}mark", 1, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Wait(t.Context(), 1, servers.FaultTimeout).Result(); err != nil || n != 1 {
		t.Fatalf("%d replicas have followed: %v", n, err)
	}
}

// TestClusterFailover loses the primaries of a cluster one by one, each in a different way.
func TestClusterFailover(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		cl := servers.StartClusterOf(t, image, 2*servers.ClusterPrimaries,
			"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0")
		d := clients.Dialing{Addrs: cl.Addrs(), Cluster: true, Prompt: true}
		for i, f := range faults {
			if !t.Run(f.name, func(t *testing.T) {
				if f.name == "disconnect" {
					servers.NeedNetwork(t)
				}
				p := &servers.Pair{Of: image + " cluster", Primary: cl.Nodes[i],
					Replica: cl.Nodes[i+servers.ClusterPrimaries], Network: cl.Network,
					Elected: servesSlots}
				lost, elsewhere := clusterKeys(t, cl, i),
					clusterKeys(t, cl, (i+1)%servers.ClusterPrimaries)
				inTime(t, func(late *lateness) {
					shared := lost("shared")
					strike(t, f, p, d, func(t testing.TB, name string) failoverKeys {
						tag := lost(name)
						return failoverKeys{own: lost(name), calm: lost(name), shared: shared,
							group: [2]string{tag + "/1", tag + "/2"}, elsewhere: elsewhere(name)}
					}).finish(t, late)
					p.Primary, p.Replica = p.Replica, p.Primary
				})
			}) {
				return
			}
		}
	})
}

// servesSlots reports whether a node of a cluster is a primary with slots in its own view.
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

// clusterKeys returns a function that returns keys in the slots that the i-th primary of a cluster
// had at the start.
func clusterKeys(t testing.TB, cl *servers.Cluster, i int) func(name string) string {
	t.Helper()
	node := servers.Connect(t, cl.Nodes[(i+1)%servers.ClusterPrimaries].Addr)
	tried := 0
	return func(name string) string {
		for {
			tried++
			key := fmt.Sprintf("%s-%d", name, tried)
			slot, err := node.ClusterKeySlot(t.Context(), "{="+key+"}").Result()
			if err != nil {
				t.Fatal(err)
			}
			if from, to := i*servers.ClusterSlots/servers.ClusterPrimaries,
				(i+1)*servers.ClusterSlots/servers.ClusterPrimaries; from <= int(slot) &&
				int(slot) < to {
				return key
			}
		}
	}
}
