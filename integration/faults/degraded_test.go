package faults

import (
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/layer"
)

// TestDegradedOutage kills and freezes the server of processes that then decide locally. It checks
// what they admit together in any window, and what the server has recorded after it has recovered.
func TestDegradedOutage(t *testing.T) {
	clients.Each(t, func(t *testing.T, lib clients.Library) {
		t.Parallel() // it mostly waits
		for name, fault := range map[string]struct {
			begin, end func(*servers.Server, testing.TB)
			twice      bool // what was sent before the local decision may still be recorded
		}{
			"kill":  {(*servers.Server).Kill, (*servers.Server).Start, false},
			"pause": {(*servers.Server).Pause, (*servers.Server).Unpause, true},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				o := newDegradedOutage(t, lib)
				o.traffic(t)
				fault.begin(o.server, t)
				o.await(t, true)
				o.spendQuiet(t)
				time.Sleep(2 * outageWindow)
				fault.end(o.server, t)
				o.await(t, false)
				time.Sleep(2 * outageWindow)
				o.stop()
				o.check(t)
				o.checkQuiet(t, fault.twice)
			})
		}
	})
}

const (
	outageInstances = 3
	outageLimit     = 30
	outageWindow    = 2 * time.Second
	// units of an instance on a key without calls after the server has recovered
	quietEach = 5
)

type degradedOutage struct {
	server    *servers.Server
	target    *servers.Target
	prefix    string
	instances []*layer.Degraded
	busy      ratelimit.Algorithm
	stop      func()

	mu      sync.Mutex
	history []span
	local   int // decisions
}

// span is the beginning and the end of a call that was admitted.
type span struct{ call, back time.Time }

func newDegradedOutage(t *testing.T, lib clients.Library) *degradedOutage {
	s := servers.Start(t, servers.Newest(), "--appendonly", "yes", "--appendfsync", "always")
	o := &degradedOutage{
		server: s, target: &servers.Target{Addrs: []string{s.Addr}}, prefix: servers.UniquePrefix(),
		busy: algorithm.SlidingLog(ratelimit.Limit{Max: outageLimit, Window: outageWindow}),
	}
	for range outageInstances {
		prompt := clients.To(o.target)
		prompt.Prompt = true
		store := lib.Client(t, prompt).NewStore(t, &serverstore.Options{Prefix: o.prefix})
		d, err := layer.NewDegraded(store, &layer.DegradedOptions{Instances: outageInstances})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		o.instances = append(o.instances, d)
	}
	return o
}

// traffic takes more than the limit, on every instance, until stop is called.
func (o *degradedOutage) traffic(t *testing.T) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, s := range o.instances {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(10 * time.Millisecond):
				}
				call := time.Now()
				res, err := s.Take(t.Context(),
					driver.Demand{Key: "busy", Algorithm: o.busy, N: 1})
				back := time.Now()
				if err != nil {
					t.Errorf("undecided: %v", err)
					continue
				}
				o.mu.Lock()
				if res.Allowed {
					o.history = append(o.history, span{call, back})
				}
				if res.Source == ratelimit.SourceLocal {
					o.local++
				}
				o.mu.Unlock()
			}
		})
	}
	time.Sleep(outageWindow)
	o.stop = sync.OnceFunc(func() {
		close(done)
		wg.Wait()
	})
	t.Cleanup(o.stop)
}

// await returns when every instance has noticed an outage or, without one, that the server is
// available, and has recorded everything.
func (o *degradedOutage) await(t *testing.T, outage bool) {
	servers.Within(t, func() bool {
		for _, s := range o.instances {
			if st := s.Stats(); st.Unavailable != outage || !outage && st.Pending > 0 {
				return false
			}
		}
		return true
	}, "the instances have not noticed")
}

func (o *degradedOutage) spendQuiet(t *testing.T) {
	for _, s := range o.instances {
		d := clients.Take("quiet")
		d.N = quietEach
		if res := clients.Ask(t, s, d); !res.Allowed || res.Source != ratelimit.SourceLocal {
			t.Errorf("got %+v, want a local admission", res)
		}
	}
}

// check fails if in any window more was admitted than the limit and all shares. A call that began
// after the beginning of the window and returned before its end was decided in it.
func (o *degradedOutage) check(t *testing.T) {
	const bound = outageLimit + outageInstances*(outageLimit/outageInstances)
	most := 0
	for _, first := range o.history {
		n := 0
		for _, h := range o.history {
			if !h.call.Before(first.call) && h.back.Before(first.call.Add(outageWindow)) {
				n++
			}
		}
		most = max(most, n)
	}
	t.Logf("%d admitted, %d decided locally; at most %d in %v, bound %d",
		len(o.history), o.local, most, outageWindow, bound)
	if most > bound || most < outageLimit/2 || o.local == 0 {
		t.Errorf("at most %d in a window, bound %d, with %d local decisions", most, bound, o.local)
	}
}

// checkQuiet fails unless the server has recorded what was admitted locally, and no more than was
// sent to it.
func (o *degradedOutage) checkQuiet(t *testing.T, twice bool) {
	calm := clients.CalmStore(t, o.target,
		&serverstore.Options{Prefix: o.prefix, Timeout: clients.Patient})
	const admitted = outageInstances * quietEach
	most := int64(admitted)
	for _, s := range o.instances {
		most += s.Stats().Unconfirmed
	}
	if twice {
		most += admitted
	}
	if got := clients.Recorded(t, calm, "quiet"); got < admitted || got > most {
		t.Errorf("%d units recorded of %d that were admitted locally, want %d at most",
			got, admitted, most)
	}
}
