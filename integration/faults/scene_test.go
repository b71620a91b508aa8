package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
	"github.com/truewindow/ratelimit/integration/faultproxy"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// A breakage is a fault of a server, or of the network between it and its clients.
type breakage struct {
	name string
	gets outcomes // the only outcomes that calls during the fault may have
	// forgets says why the server loses what it has acknowledged, if that is how it is documented
	// to work. It is empty if nothing may be lost.
	forgets string

	network    bool // a fault of the network, so there is a proxy before the server
	durable    bool // on a server with an append-only file
	begin, end func(testing.TB, *scene)
	during     func(testing.TB, *scene) // nil: wait
	lasts      time.Duration            // how long to wait
}

// outcomes is a set of outcomes of calls.
type outcomes uint8

const (
	answers outcomes = 1 << iota
	unavailable
	unknown

	noAnswers = unavailable | unknown
	anything  = answers | unavailable | unknown
)

var breakages = slices.Concat(networkFaults, serverFaults)

const (
	breakageLasts  = time.Second
	breakageRepeat = 50 * time.Millisecond // between repetitions of faults that are over at once

	callPace = 10 * time.Millisecond
	// defaultTimeout is that of a call on a store with the zero Options.
	defaultTimeout = 100 * time.Millisecond
	normalCalls    = 10 // decisions in a row, for each caller, after which all is normal
	normalAfter    = servers.FaultTimeout
	controlTimeout = 10 * normalAfter
	calmUnits      = 20 // of a key without traffic during the fault

	faultUser, faultPassword = "app", "hunter2" // as whom the clients log in
)

// faultLog is a limit that no test reaches.
var faultLog = algorithm.SlidingLog(ratelimit.PerDay("day", 1<<20))

// A scene is one server, and a client of each library with traffic.
type scene struct {
	server    *servers.Server
	prefix    string
	admin     *redis.Conn // one connection, so that SKIPME spares it
	witnesses []*witness
	// when the server had recovered; set by an end that can measure it more exactly
	healed time.Time
}

// set begins a network fault between each client and the server.
func (s *scene) set(f faultproxy.Fault) {
	for _, w := range s.witnesses {
		w.proxy.Set(f)
	}
}

func (s *scene) do(t testing.TB, args ...any) {
	t.Helper()
	if err := s.admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// A witness is one client with its callers.
type witness struct {
	lib     clients.Library
	proxy   *faultproxy.Proxy // or nil
	callers []*caller
	calm    string // key of which calmUnits were taken before the fault
	patient ratelimit.Store
}

// A caller takes one unit of its key again and again, and counts the outcomes.
type caller struct {
	store ratelimit.Store
	key   string
	phase *atomic.Int32
	ask   func() error // what it does in place of a take; or nil

	streak  atomic.Int32 // decisions in a row of calls that began after the fault
	lastBad atomic.Int64 // when the last call without a decision ended, in nanoseconds since 1970

	mu                sync.Mutex
	admitted, unknown int
	got               got
	// when the first call was answered after the fault began to end
	noticed time.Time
	slowest time.Duration
	wrong   error
}

// got counts calls that began and ended during the fault.
type got struct{ answers, unavailable, unknown int }

func (a *got) count(err error) {
	switch {
	case err == nil:
		a.answers++
	case errors.Is(err, ratelimit.ErrOutcomeUnknown):
		a.unknown++
	default:
		a.unavailable++
	}
}

func (a got) plus(b got) got {
	return got{a.answers + b.answers, a.unavailable + b.unavailable, a.unknown + b.unknown}
}

// unexpected reports whether calls had outcomes that o does not have: one answer, or failures in
// more than half of the calls. A busy machine misses some deadlines, so fewer failures are ignored.
func (a got) unexpected(o outcomes) bool {
	failures := 0
	if o&unavailable == 0 {
		failures += a.unavailable
	}
	if o&unknown == 0 {
		failures += a.unknown
	}
	return o&answers == 0 && a.answers > 0 || 2*failures > a.answers+a.unavailable+a.unknown
}

const (
	phaseBefore = iota
	phaseBroken
	phaseHealing
	phaseHealed
)

func (c *caller) run(stop <-chan struct{}) {
	tick := time.NewTicker(callPace)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		phase := c.phase.Load()
		took := servers.TimeAnswer(defaultTimeout)
		var err error
		if c.ask != nil {
			err = c.ask()
		} else {
			_, err = c.store.Take(context.Background(),
				driver.Demand{Key: c.key, Algorithm: faultLog, N: 1})
		}
		c.heard(phase, took(), err)
	}
}

func (c *caller) heard(phase int32, took time.Duration, err error) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slowest = max(c.slowest, took)
	switch {
	case err == nil:
		c.admitted++
		if c.noticed.IsZero() && phase >= phaseHealing {
			c.noticed = now
		}
	case errors.Is(err, ratelimit.ErrOutcomeUnknown):
		c.unknown++
	case !errors.Is(err, ratelimit.ErrUnavailable):
		c.wrong = err
	}
	if phase == phaseBroken && c.phase.Load() == phaseBroken {
		c.got.count(err)
	}
	switch {
	case err != nil:
		c.lastBad.Store(now.UnixNano())
		c.streak.Store(0)
	case phase == phaseHealed:
		c.streak.Add(1)
	}
}

// TestFaults plays each fault under the traffic of clients of all libraries. Each call returns in
// time, no unit is recorded twice, acknowledged units are lost only where the server is documented
// to lose them, and soon after the fault all is normal. At every commit each fault is played on one
// of the servers, in a full run on all of them.
func TestFaults(t *testing.T) {
	t.Parallel() // it mostly waits
	for i, image := range faultImages() {
		t.Run(strings.ReplaceAll(image, "/", "-"), func(t *testing.T) {
			t.Parallel()
			stages := newStages(t, image)
			for j, b := range breakages {
				if depth.Full || j%len(faultImages()) == i {
					t.Run(b.name, func(t *testing.T) { b.play(t, stages(b.durable)) })
				}
			}
		})
	}
}

// faultImages are the newest servers.
func faultImages() []string {
	newest := slices.DeleteFunc(slices.Clone(servers.Images()), func(image string) bool {
		return strings.HasSuffix(image, ":7")
	})
	if len(newest) == 0 {
		return servers.Images()
	}
	return newest
}

// newStages returns a function that returns a server, started at its first call.
func newStages(t *testing.T, image string) func(durable bool) *servers.Server {
	t.Helper()
	servers.NeedOwn(t) // a subtest cannot skip t
	var running [2]*servers.Server
	return func(durable bool) *servers.Server {
		i, file := 0, "no"
		if durable {
			i, file = 1, "yes"
		}
		if running[i] == nil {
			// With "everysec" a server on a busy disk answers up to 2 s before it writes.
			running[i] = servers.Start(t, image, "--save", "", "--appendonly", file,
				"--appendfsync", "no", "--user", faultUser, "on", ">"+faultPassword, "~*", "+@all")
		}
		return running[i]
	}
}

func (b breakage) play(t *testing.T, on *servers.Server) {
	inTime(t, func(late *lateness) {
		s := newScene(t, on, b.network)
		b.act(t, s, late)
		for _, w := range s.witnesses {
			faultTable.add(w.judge(t, b, s, late))
		}
	})
}

// lateness is what took too long in a scene, and how long the machine stood still.
type lateness struct {
	still time.Duration
	wrong []string
}

func (l *lateness) errorf(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// inTime plays a scene up to three times, and fails if something in it took too long each time.
// That may be a call that began before the fault and lasted as long. A busy machine may delay the
// process or the server.
func inTime(t *testing.T, play func(late *lateness)) {
	t.Helper()
	const plays = 3
	for i := 1; ; i++ {
		late := new(lateness)
		play(late)
		if len(late.wrong) == 0 || t.Failed() {
			return
		}
		wrong := fmt.Sprintf("%s\nthe machine stood still for %v",
			strings.Join(late.wrong, "\n"), late.still)
		if i == plays {
			t.Error(wrong)
			return
		}
		t.Log("played again: ", wrong)
	}
}

// act begins b on s, ends it, and returns when all is normal again.
func (b breakage) act(t *testing.T, s *scene, late *lateness) {
	t.Helper()
	phase := new(atomic.Int32)
	for _, w := range s.witnesses {
		for _, c := range w.callers {
			c.phase = phase
		}
	}
	stop := make(chan struct{})
	var traffic sync.WaitGroup
	halt := sync.OnceFunc(func() { close(stop); traffic.Wait() })
	watched := servers.WatchStandstill()
	defer func() { late.still = watched() }()
	defer halt()
	for _, w := range s.witnesses {
		for _, c := range w.callers {
			traffic.Go(func() { c.run(stop) })
		}
	}
	pause(10 * callPace) // so that there is traffic when the fault begins

	if b.begin != nil {
		b.begin(t, s)
	}
	phase.Store(phaseBroken)
	if b.during != nil {
		b.during(t, s)
	} else {
		pause(max(b.lasts, breakageLasts))
	}
	phase.Store(phaseHealing)
	if b.end != nil {
		b.end(t, s)
	}
	if s.healed.IsZero() {
		s.healed = time.Now()
	}
	phase.Store(phaseHealed)
	s.awaitNormal(t, late)
}

func pause(d time.Duration) { <-time.After(d) }

// newScene returns a scene on a server whose clients have had traffic.
func newScene(t *testing.T, on *servers.Server, network bool) *scene {
	s := &scene{server: on, prefix: servers.UniquePrefix()}
	client := servers.Connect(t, on.Addr)
	s.admin = client.Conn()
	t.Cleanup(func() { s.admin.Close() })
	patiently := clients.GoRedis(client).
		NewStore(t, &serverstore.Options{Prefix: s.prefix, Timeout: clients.Patient})
	for _, lib := range clients.Libraries {
		w := &witness{lib: lib, calm: lib.Name + "-calm", patient: patiently}
		d := clients.Dialing{Addrs: []string{on.Addr}, Username: faultUser, Password: faultPassword,
			Prompt: true}
		if network {
			w.proxy = servers.Proxy(t, on.Addr)
			d.Addrs[0] = w.proxy.Addr()
		}
		store := lib.Client(t, d).NewStore(t, &serverstore.Options{Prefix: s.prefix})
		for i := range 4 { // two for each key, so that calls are batched
			w.callers = append(w.callers,
				&caller{store: store, key: fmt.Sprintf("%s-%d", lib.Name, i/2)})
		}
		for range calmUnits {
			if _, err := patiently.Take(t.Context(),
				driver.Demand{Key: w.calm, Algorithm: faultLog, N: 1}); err != nil {
				t.Fatal(err)
			}
		}
		w.warm(t)
		s.witnesses = append(s.witnesses, w)
	}
	return s
}

// warm calls the store until there is a connection.
func (w *witness) warm(t testing.TB) {
	t.Helper()
	servers.Await(t, func() (bool, error) {
		_, err := w.callers[0].store.Take(t.Context(),
			driver.Demand{Key: "warm", Algorithm: faultLog, N: 1})
		return err == nil, nil
	})
}

// awaitNormal returns when each caller has had its decisions in a row. It notes who had not after
// normalAfter, of which only the time counts in which a client that has not seen the fault is
// answered: on a busy machine calls miss their deadlines without a fault. It fails after
// controlTimeout.
func (s *scene) awaitNormal(t testing.TB, late *lateness) {
	t.Helper()
	control := clients.GoRedis(servers.Connect(t, s.server.Addr)).
		NewStore(t, &serverstore.Options{Prefix: s.prefix})
	waiting := slices.Clone(s.witnesses)
	tick := time.NewTicker(callPace)
	defer tick.Stop()
	began, inRow, waited := time.Now(), 0, time.Duration(0)
	for last := began; ; {
		waiting = slices.DeleteFunc(waiting, func(w *witness) bool {
			return !slices.ContainsFunc(w.callers,
				func(c *caller) bool { return c.streak.Load() < normalCalls })
		})
		switch {
		case len(waiting) == 0:
			return
		case waited >= normalAfter:
			for _, w := range waiting {
				late.errorf("%s: not normal after %v", w.lib.Name, waited)
			}
			return
		case last.Sub(began) > controlTimeout:
			t.Fatalf("after %v clients do not have %d answers in a row, nor has one that has not "+
				"seen the fault", controlTimeout, normalCalls)
		}
		<-tick.C
		_, err := control.Take(t.Context(),
			driver.Demand{Key: "control", Algorithm: faultLog, N: 1})
		now := time.Now()
		inRow++
		if err != nil {
			inRow = 0
		}
		if inRow >= normalCalls {
			waited += now.Sub(last)
		}
		last = now
	}
}

// judge fails unless the outcomes of w's callers agree with what is recorded and were in time. It
// returns the row of the table.
func (w *witness) judge(t *testing.T, b breakage, s *scene, late *lateness) faultRow {
	t.Helper()
	row := faultRow{fault: b.name, client: w.lib.Name, image: s.server.Image}
	asked := map[string]*[2]int{w.calm: {calmUnits, 0}} // admitted and unknown
	var lastBad, noticed time.Time
	for _, c := range w.callers {
		row.got = row.got.plus(c.got)
		row.slowest = max(row.slowest, c.slowest)
		if asked[c.key] == nil {
			asked[c.key] = new([2]int)
		}
		asked[c.key][0] += c.admitted
		asked[c.key][1] += c.unknown
		if at := time.Unix(0, c.lastBad.Load()); at.After(lastBad) {
			lastBad = at
		}
		if noticed.IsZero() || c.noticed.Before(noticed) {
			noticed = c.noticed
		}
		if c.wrong != nil {
			t.Errorf("%s: %v, want ErrUnavailable or ErrOutcomeUnknown", w.lib.Name, c.wrong)
		}
	}
	row.noticed, row.normal = max(0, noticed.Sub(s.healed)), max(0, lastBad.Sub(s.healed))
	for key, n := range asked {
		recorded, admitted, unknown := used(t, w.patient, key), n[0], n[1]
		row.admitted, row.unknown, row.recorded = row.admitted+admitted, row.unknown+unknown,
			row.recorded+recorded
		if recorded > admitted+unknown {
			t.Errorf("%s: %d units are recorded, %d admitted and %d unknown",
				w.lib.Name, recorded, admitted, unknown)
		}
		if recorded < admitted && b.forgets == "" {
			t.Errorf("%s: %d units are recorded of %d admitted", w.lib.Name, recorded, admitted)
		}
	}
	t.Logf("%+v, the machine stood still for %v", row, late.still)
	if row.slowest > servers.LatestAnswer(defaultTimeout, late.still) {
		late.errorf("%s: an answer took %v", w.lib.Name, row.slowest)
	}
	if row.got == (got{}) {
		late.errorf("%s: no call was made during the fault: this test proves nothing", w.lib.Name)
	}
	if row.got.unexpected(b.gets) {
		late.errorf("%s: callers got %+v", w.lib.Name, row.got)
	}
	return row
}

// revive calls act, which ends the fault of a server, and measures when the server answers again.
func (s *scene) revive(t testing.TB, act func(testing.TB)) {
	t.Helper()
	back := make(chan time.Time, 1)
	ctx, cancel := context.WithTimeout(t.Context(), servers.FaultTimeout)
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if pong(s.server.Addr) {
				back <- time.Now()
				return
			}
			pause(2 * time.Millisecond)
		}
	}()
	act(t)
	select {
	case s.healed = <-back:
	case <-ctx.Done():
		t.Fatal("the server does not recover")
	}
}

// pong reports whether a server answers a PING on a new connection.
func pong(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
	answer := make([]byte, len("+PONG"))
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	_, err = io.ReadFull(conn, answer)
	return err == nil && string(answer) == "+PONG"
}
