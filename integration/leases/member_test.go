package leases

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/layer"
)

// memberEnv makes the test binary a process of a fleet: it has a memberTask.
const memberEnv = "RATELIMIT_TEST_LEASES"

// memberTask is what a process of a fleet does until its input ends: it makes demands of each limit
// and appends each admission to a file.
type memberTask struct {
	Library string
	Addrs   []string
	Cluster bool
	Prefix  string
	Leases  bool
	File    string
	Limits  []ratelimit.Limit
	Rates   []float64 // demands a second, of this process
}

// memberStats are what a process reports of a limit when its input has ended.
type memberStats struct {
	Decisions, Calls int64 // Calls are those of the store on the server
	Leased           layer.LeasedStats
}

const (
	// storeTimeout is long, since the machine may be busy.
	storeTimeout = time.Second
	memberTick   = 5 * time.Millisecond
	// mostPerWorker is the number of demands a second of a goroutine.
	mostPerWorker = 300
)

func (task memberTask) run() error {
	store, stop, err := task.open()
	for try := 0; err != nil && try < 50; try++ { // the server may be paused
		time.Sleep(memberTick)
		store, stop, err = task.open()
	}
	if err != nil {
		return err
	}
	defer stop()
	file, err := os.OpenFile(task.File, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	var over atomic.Bool
	var working sync.WaitGroup
	all := make([]memberStats, len(task.Limits))
	report := make([]func() memberStats, len(task.Limits))
	for i, limit := range task.Limits {
		counting := &countingStore{Store: store}
		inner, leased := ratelimit.Store(counting), (*layer.Leased)(nil)
		if task.Leases {
			leased, err = layer.NewLeased(counting, &layer.LeasedOptions{
				Loss: func(driver.Limit) float64 { return leaseLoss }})
			if err != nil {
				return err
			}
			defer leased.Close()
			inner = leased
		}
		limiter, err := ratelimit.New(inner, algorithm.SlidingLog(limit))
		if err != nil {
			return err
		}
		workers := 1 + int(task.Rates[i]/mostPerWorker)
		var decisions atomic.Int64
		for range workers {
			w := worker{limiter, i, task.Rates[i] / float64(workers), file, &decisions}
			working.Go(func() { w.work(&over) })
		}
		report[i] = func() memberStats {
			s := memberStats{Decisions: decisions.Load(), Calls: counting.calls.Load()}
			if leased != nil {
				s.Leased = leased.Stats()
			}
			return s
		}
	}
	answers := json.NewEncoder(os.Stdout)
	if err := answers.Encode(true); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	over.Store(true)
	working.Wait()
	for i := range all {
		all[i] = report[i]()
	}
	return errors.Join(err, answers.Encode(all))
}

func (task memberTask) open() (store ratelimit.Store, stop func(), err error) {
	for _, lib := range clients.Libraries {
		if lib.Name == task.Library {
			client, err := lib.Open(clients.Dialing{Addrs: task.Addrs, Cluster: task.Cluster})
			if err != nil {
				return nil, nil, err
			}
			s, err := client.Store(
				&serverstore.Options{Prefix: task.Prefix, Timeout: storeTimeout})
			return s, client.Close, err
		}
	}
	return nil, nil, fmt.Errorf("unknown library %q", task.Library)
}

// countingStore counts the calls of the store inside.
type countingStore struct {
	ratelimit.Store
	calls atomic.Int64
}

func (s *countingStore) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	s.calls.Add(1)
	return s.Store.Take(ctx, d)
}

// An admission is of units of a limit at a time from begin to end, in ns by the wall clock. All
// processes and servers on a machine have the same one.
type admission struct{ begin, end, limit, units int64 }

const admissionSize = 4 * 8

type worker struct {
	limiter   *ratelimit.Limiter
	limit     int
	rate      float64
	file      io.Writer
	decisions *atomic.Int64
}

// work makes as many demands in each tick as arrive at random at the rate. What arrives while it
// waits for an answer, it demands afterwards, but not what arrived long before.
func (w worker) work(over *atomic.Bool) {
	ctx := context.Background()
	var buf []byte
	next := time.Now()
	for !over.Load() {
		time.Sleep(memberTick)
		now := time.Now()
		if late := now.Add(-50 * memberTick); next.Before(late) {
			next = late
		}
		buf = buf[:0]
		for ; next.Before(now); next = next.Add(time.Duration(rand.ExpFloat64() / w.rate * 1e9)) {
			begin := time.Now().UnixNano()
			res, err := w.limiter.Allow(ctx, "key")
			end := time.Now().UnixNano()
			if err != nil {
				break
			}
			if w.decisions.Add(1); res.Allowed {
				for _, v := range []int64{begin, end, int64(w.limit), res.Units} {
					buf = binary.LittleEndian.AppendUint64(buf, uint64(v))
				}
			}
		}
		if len(buf) > 0 {
			if _, err := w.file.Write(buf); err != nil {
				panic(err)
			}
		}
	}
}

// readAdmissions reads a file of a process, which may have been killed while it wrote.
func readAdmissions(name string) (all []admission, err error) {
	data, err := os.ReadFile(name)
	for ; len(data) >= admissionSize; data = data[admissionSize:] {
		var v [4]int64
		for i := range v {
			v[i] = int64(binary.LittleEndian.Uint64(data[8*i:]))
		}
		all = append(all, admission{v[0], v[1], v[2], v[3]})
	}
	return all, err
}
