package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/transactional"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/conformance/linear"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/faultproxy"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

const image = "quay.io/coreos/etcd:v3.5.16"

// patient is a timeout for busy machines.
const patient = 8 * time.Second

// startServer starts a server with options and returns its address.
func startServer(t testing.TB, options ...string) string {
	t.Helper()
	cmd := append([]string{"etcd", "--listen-client-urls=http://0.0.0.0:2379",
		"--advertise-client-urls=http://127.0.0.1:2379"}, options...)
	address := net.JoinHostPort(servers.StartOther(t, image, nil, cmd...).IP, "2379")
	client := dial(t, address)
	servers.Await(t, func() (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := client.Get(ctx, "k")
		return err == nil, nil
	})
	return address
}

// dial returns a client that is closed at the end of the test.
func dial(t testing.TB, address string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://" + address}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// newStore returns a store with a client of its own, as in another process.
func newStore(t testing.TB, address, prefix string, opts *transactional.Options) *Store {
	t.Helper()
	s, err := New(dial(t, address), prefix, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// longRules make long sequences of calls, which other stores of package transactional run too.
const longRules = "step result hold settle window ahead takeall-keys op/many-records " +
	"identity/many-keys identity/every-byte concurrency/many-calls expiry/sweep takeall/results " +
	"takeall/state takeall/two-clients takeall/repeated takeall/repeated-two-clients " +
	"takeall/hundreds identity/joined-names expiry/real-fractions expiry/not-early"

// TestConformance runs the public suite.
func TestConformance(t *testing.T) {
	t.Parallel()
	except := map[string]string{"step/large-state": "a request has at most 1.5 MiB"}
	for rule := range strings.FieldsSeq(longRules) {
		if !depth.Full {
			except[rule] = "tried at full depth"
		}
	}
	address := startServer(t, "--max-txn-ops=256", "--unsafe-no-fsync")
	admin := dial(t, address)
	var cases atomic.Int64
	conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
		proxy := servers.Proxy(t, address)
		prefix := fmt.Sprintf("limits/%d/", cases.Add(1))
		opts := &transactional.Options{Now: now, Timeout: patient}
		s := newStore(t, proxy.Addr(), prefix, opts)
		clock := now
		if clock == nil {
			clock = func() int64 { return time.Now().UnixMicro() }
		}
		return conformance.Harness{
			Store: s,
			Second: func(t testing.TB) driver.Store {
				return newStore(t, proxy.Addr(), prefix, opts)
			},
			Writes: func() (n int64, err error) {
				all, err := admin.Get(context.Background(), prefix, clientv3.WithPrefix(),
					clientv3.WithKeysOnly())
				if err == nil {
					for _, kv := range all.Kvs {
						n += kv.Version
					}
				}
				return n, err
			},
			Close: s.Close,
			LoseAnswer: func() error {
				proxy.Set(faultproxy.Fault{Kind: faultproxy.CutAfter, Holding: comparison,
					Times: 1})
				return nil
			},
			Freeze: func() (func() error, error) {
				proxy.Set(faultproxy.Fault{Kind: faultproxy.Freeze})
				return func() error {
					proxy.Heal()
					return nil
				}, nil
			},
			Sweep: func() error { return s.Sweep(context.Background(), clock()) },
		}
	}, &conformance.Options{CheckHistory: linear.Check, Except: except})
}

// comparison is in requests that compare revisions: target MOD, and the tag of the key.
const comparison = "\x10\x02\x1a"

// TestContended takes from one key through several stores, in some calls with a second key, and
// counts what was admitted.
func TestContended(t *testing.T) {
	t.Parallel()
	const processes, callers, most = 8, 8, 300
	address := startServer(t, "--unsafe-no-fsync")
	limit := func(n int64) driver.Algorithm {
		return algorithm.SlidingLog(driver.PerHour("calls", n))
	}
	hot := driver.Demand{Key: "hot", N: 1, Algorithm: limit(most)}
	var admitted, both, contended, unknown atomic.Int64
	take := func(s *Store, ds ...driver.Demand) (more bool) {
		out := make([]driver.Result, len(ds))
		err := s.TakeAll(t.Context(), ds, out)
		switch {
		case errors.Is(err, driver.ErrOutcomeUnknown):
			unknown.Add(1)
		case errors.Is(err, driver.ErrContended):
			contended.Add(1)
		case err != nil:
			t.Error(err)
			return false
		case out[0].Allowed:
			admitted.Add(1)
			both.Add(int64(len(ds) - 1))
		default:
			return false
		}
		return true
	}
	second := driver.Demand{Key: "second", N: 1, Algorithm: limit(2 * most)}
	var wg sync.WaitGroup
	for range processes {
		s := newStore(t, address, "limits/", &transactional.Options{Timeout: patient})
		for c := range callers {
			wg.Go(func() {
				for more := true; more; {
					if more = take(s, hot); more && c == 0 {
						more = take(s, hot, second)
					}
				}
			})
		}
	}
	wg.Wait()
	t.Logf("%d contended, %d unknown", contended.Load(), unknown.Load())
	if n := admitted.Load(); n > most || n+unknown.Load() < most {
		t.Errorf("%d were admitted, want %d", n, most)
	}
	second.Op = driver.OpPeek
	res, err := newStore(t, address, "limits/",
		&transactional.Options{Timeout: patient}).Take(t.Context(), second)
	if n := 2*most - res.Remaining; err != nil || n < both.Load() ||
		n > both.Load()+unknown.Load() {
		t.Errorf("%d of the second key are recorded, %v; want %d", n, err, both.Load())
	}
}

// TestRetry: a call is decided again after a change. If its context ends meanwhile, it is
// contended, not an outage.
func TestRetry(t *testing.T) {
	s := &Store{timeout: time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := s.retry(ctx, func() error {
		if calls++; calls < 3 {
			return fmt.Errorf("transactional: %w", errChanged)
		}
		cancel()
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
	})
	if calls != 3 || !errors.Is(err, driver.ErrContended) || !errors.Is(err, context.Canceled) {
		t.Errorf("%d calls, %v", calls, err)
	}
	s.timeout = 0
	if err := s.retry(t.Context(), func() error { return errChanged }); err != errChanged {
		t.Errorf("when time is over: %v", err)
	}
}

// TestClocks: a process whose clock is ahead forgets what others took too early, and others forget
// what it took too late.
func TestClocks(t *testing.T) {
	t.Parallel()
	const ahead, window = 10 * time.Second, time.Minute
	address := startServer(t, "--unsafe-no-fsync")
	var now atomic.Int64
	now.Store(time.Now().UnixMicro())
	right := newStore(t, address, "limits/", &transactional.Options{
		Now: now.Load, Timeout: patient})
	fast := newStore(t, address, "limits/", &transactional.Options{Timeout: patient,
		Now: func() int64 { return now.Load() + ahead.Microseconds() }})
	d := driver.Demand{Key: "user:42", N: 1,
		Algorithm: algorithm.SlidingLog(driver.PerMinute("calls", 1))}
	for _, step := range []struct {
		after   time.Duration
		store   *Store
		allowed bool
	}{
		{0, right, true},
		{window - ahead - time.Microsecond, fast, false},
		{time.Microsecond, fast, true},
		{window, right, false},
		{ahead - time.Microsecond, right, false},
		{time.Microsecond, right, true},
	} {
		now.Add(step.after.Microseconds())
		if res, err := step.store.Take(t.Context(), d); err != nil || res.Allowed != step.allowed {
			t.Errorf("%+v: %+v, %v", step, res, err)
		}
	}
}

// TestRefused: of what the server refuses nothing is recorded, and the error says so.
func TestRefused(t *testing.T) {
	t.Parallel()
	address := startServer(t, "--unsafe-no-fsync", "--max-request-bytes=8000")
	s := newStore(t, address, "limits/", &transactional.Options{Timeout: patient})
	for _, keys := range []int{100, 129} { // a request that is too large, too many operations
		ds, out := make([]driver.Demand, keys), make([]driver.Result, keys)
		for i := range ds {
			ds[i] = driver.Demand{Key: fmt.Sprint("user:", i), N: 1,
				Algorithm: algorithm.SlidingLog(driver.PerHour("calls", 2))}
		}
		err := s.TakeAll(t.Context(), ds, out)
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Errorf("%d keys: %v", keys, err)
		}
		if res, err := s.Take(t.Context(), ds[0]); err != nil || res.Remaining != 1 {
			t.Errorf("%d keys: %+v, %v", keys, res, err)
		}
		if _, err := s.Take(t.Context(), driver.Demand{Op: driver.OpReset, Key: ds[0].Key,
			Algorithm: ds[0].Algorithm}); err != nil {
			t.Error(err)
		}
	}
	if _, err := New(dial(t, address), "", nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no prefix: %v", err)
	}
}

// BenchmarkHotKey takes from one key through several stores, which stand for processes, with four
// callers each.
func BenchmarkHotKey(b *testing.B) {
	address := startServer(b)
	for _, processes := range []int{2, 8, 32} {
		b.Run(fmt.Sprintf("processes=%d", processes), func(b *testing.B) {
			d := driver.Demand{Key: "hot", N: 1, Algorithm: algorithm.GCRA(
				driver.PerSecond("calls", 1_000_000))}
			var left, contended, failed atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			for range processes {
				s := newStore(b, address, "limits/", nil)
				for range 4 {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							_, err := s.Take(b.Context(), d)
							if errors.Is(err, driver.ErrContended) {
								contended.Add(1)
							} else if err != nil {
								failed.Add(1)
							}
						}
					})
				}
			}
			wg.Wait()
			calls := float64(b.N)
			decided := calls - float64(contended.Load()+failed.Load())
			b.ReportMetric(decided/b.Elapsed().Seconds(), "decisions/s")
			b.ReportMetric(100*float64(contended.Load())/calls, "%-contended")
			b.ReportMetric(100*float64(failed.Load())/calls, "%-failed")
		})
	}
}
