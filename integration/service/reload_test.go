package service

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// reloadsEnv is how long TestReloads changes the files, such as 30m, instead of reloadsShort.
const (
	reloadsEnv   = "RATELIMIT_RELOADS"
	reloadsShort = 3 * time.Second
	enough       = 5 // changes, one of them to a file with an error
)

// TestReloads changes the file of a service under load, one time in five to one with an error.
// Every request is decided. Under a limit that stays the same exactly its units are admitted, and
// under one that changes never more than the larger Max. Reloads hold no request up, and leave
// nothing behind.
func TestReloads(t *testing.T) {
	lasts, every := reloadsShort, 500*time.Millisecond
	long := os.Getenv(reloadsEnv) != ""
	if long {
		var err error
		if lasts, err = time.ParseDuration(os.Getenv(reloadsEnv)); err != nil {
			t.Fatal(err)
		}
		every = time.Second
	}
	bin := daemon.Build(t)
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			if !long { // in the long form, one must not slow the control of another
				t.Parallel()
			}
			servers.CountTest(t, "memory")
			r := startReloads(t, bin, w)
			before := r.settled()
			stop := clients(4, 10*time.Millisecond, r.take)
			defer stop()
			idle := daemon.Start(t, bin).WatchHealth(t) // what takes long there is the machine
			time.Sleep(min(lasts, time.Minute))
			r.reloading.Store(true)
			for began := time.Now(); time.Since(began) < lasts || r.changes.Load() < enough; {
				next := time.After(every)
				r.replace()
				<-next
			}
			stop()
			r.judge(idle())
			r.judgeProcess(before)
		})
	}
}

// reloads are a service whose file changes under load.
type reloads struct {
	*testing.T
	way
	service *daemon.Daemon
	client  *http.Client
	to      change
	changes atomic.Int64 // also what the keys in use are named after

	reloading      atomic.Bool
	same, changing *tally

	mu             sync.Mutex
	calm, reloaded latencies
	limits         map[int64]int // answers by the Max of the limit that changes
	failures       int
}

func startReloads(t *testing.T, bin string, w way) *reloads {
	r := &reloads{T: t, way: w, client: newClient(t), same: newTally(), changing: newTally(),
		limits: make(map[int64]int)}
	var path string
	path, r.to = w.start(t, limitsFile(smaller, w.others))
	r.service = daemon.Start(t, bin, "--config="+path)
	return r
}

// take takes a unit of one of the keys in use.
func (r *reloads) take(client, call int) {
	key := fmt.Sprintf("%d/%d", r.changes.Load(), call%4)
	entry, count := "same", r.same
	if client%2 == 1 {
		entry, count = "changing", r.changing
	}
	reloading := r.reloading.Load()
	a := take(r.Context(), r.client, r.service.URL(), entry, key)
	count.add(key, a)
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.err != nil {
		if r.failures++; r.failures < 5 {
			r.Errorf("%s %s: %v", entry, key, a.err)
		}
		return
	}
	if reloading {
		r.reloaded = append(r.reloaded, a.took)
	} else {
		r.calm = append(r.calm, a.took)
	}
	if entry == "changing" {
		r.limits[a.limit]++
	}
}

// outcomes returns how many files the service has loaded and refused, without those of credentials.
func (r *reloads) outcomes() (loaded, refused int) {
	log := r.service.Logged()
	return strings.Count(log, `"msg":"the configuration is loaded","config":`),
		strings.Count(log, `"msg":"the configuration is not loaded`)
}

// replace changes the file, and waits until the service has loaded or refused it.
func (r *reloads) replace() {
	n := r.changes.Add(1)
	loaded, refused := r.outcomes()
	bad := n%enough == 0
	switch {
	case bad:
		r.to(r.T, r.service, broken(r.others))
	case n%2 == 0:
		r.to(r.T, r.service, limitsFile(smaller, r.others))
	default:
		r.to(r.T, r.service, limitsFile(larger, r.others))
	}
	servers.Within(r, func() bool {
		l, f := r.outcomes()
		return bad && f > refused || !bad && l > loaded
	}, "the file is not loaded")
}

// settled has the service load its file again and again, so that what it needs is there, and
// returns the state of the process.
func (r *reloads) settled() process {
	r.Helper()
	r.client.CloseIdleConnections()
	times := 20
	if r.others > 0 {
		times = 5
	}
	for range times {
		loaded, refused := r.outcomes()
		r.service.Signal(r.T, syscall.SIGHUP)
		servers.Within(r, func() bool {
			l, f := r.outcomes()
			return l > loaded || f > refused
		}, "the file is not loaded at a signal")
	}
	return processOf(r.T, r.service)
}

// judge checks what the load counted.
func (r *reloads) judge(idle time.Duration) {
	r.to(r.T, r.service, limitsFile(larger, r.others))
	servers.Within(r, func() bool {
		a := take(r.Context(), r.client, r.service.URL(), "changing", "last")
		return a.limit == larger
	}, "the larger limit is not in force")
	if n := r.changing.most(); n > larger {
		r.Errorf("%d units of a key were admitted, want at most %d", n, larger)
	}
	kept := r.same.useUp(r.T, r.service.URL(), "same", same)
	changed := r.changing.useUp(r.T, r.service.URL(), "changing", larger)
	loaded, refused := r.outcomes()
	servers.Measured("%s: %d files were loaded and %d refused; %d and %d units of %d keys each; "+
		"during reloads %v; before %v; all requests of another process within %v",
		r.Name(), loaded, refused, kept.admitted, changed.admitted, len(r.same.keys), r.reloaded,
		r.calm, idle.Round(10*time.Microsecond))
	if refused == 0 || r.limits[smaller] == 0 || r.limits[larger] == 0 || len(r.limits) != 2 {
		r.Errorf("%d files were refused, answers by Max are %v: this test proves nothing",
			refused, r.limits)
	}
	// Only a run that was asked for has the machine for itself.
	const slower = 10 * time.Millisecond
	if os.Getenv(reloadsEnv) != "" &&
		r.reloaded.slowest() > slower+max(r.calm.slowest(), idle) {
		r.Errorf("a request took %v, but %v without reloads, and %v in another process",
			r.reloaded.slowest(), r.calm.slowest(), idle)
	}
}

// judgeProcess compares the process after the reloads with the one before. A garbage collection may
// have come in the middle of a load, so it loads the file again until one has not.
func (r *reloads) judgeProcess(before process) {
	const few = 5 // connections of this test that come and go
	// The states of the keys in bytes, twice as the heap is.
	keys := 2 * 32 * same * int64(len(r.same.keys)+len(r.changing.keys))
	var after process
	defer func() {
		servers.Measured("%s: before the reloads %v, after them %v", r.Name(), before, after)
	}()
	servers.Within(r, func() bool {
		after = r.settled()
		return after.goroutines <= before.goroutines+few && after.files <= before.files+few &&
			after.heap <= before.heap*5/4+2*keys+2_000_000
	}, "the process needs more than before the reloads")
}

// latencies are how long requests took.
type latencies []time.Duration

func (l latencies) slowest() time.Duration { return slices.Max(append(l, 0)) }

func (l latencies) String() string {
	l = slices.Sorted(slices.Values(l))
	if len(l) == 0 {
		return "no request"
	}
	return fmt.Sprintf("%d requests, half of them within %v, 99.9 %% within %v, all within %v",
		len(l), l[len(l)/2].Round(10*time.Microsecond),
		l[len(l)-1-len(l)/1000].Round(10*time.Microsecond),
		l.slowest().Round(10*time.Microsecond))
}
