//go:build !race

package layer_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
	"github.com/truewindow/ratelimit/internal/testkit/heap"
	"github.com/truewindow/ratelimit/layer"
)

// TestDegradedFullUnderFailOpen: in an outage callers cannot make FailOpen admit what the layer has
// no room for: a key beyond MaxKeys, a key too long, more units than the share.
func TestDegradedFullUnderFailOpen(t *testing.T) {
	for _, mode := range []int32{gone, frozen} {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2, MaxKeys: 1})
		store.mode.Store(mode)
		limiter, err := ratelimit.New(s, eight)
		if err != nil {
			t.Fatal(err)
		}
		limiter = limiter.WithPolicy(ratelimit.FailOpen)
		long := strings.Repeat("k", 1000)
		refuse := func(key string, n int64) {
			t.Helper()
			for range 10 {
				res, err := limiter.AllowN(t.Context(), key, n)
				if res.Allowed || !errors.Is(err, driver.ErrCapacity) ||
					errors.Is(err, driver.ErrOutcomeUnknown) != (mode == frozen) {
					t.Fatalf("%.9s, %d units: %+v, %v; want ErrCapacity", key, n, res, err)
				}
			}
		}
		refuse(long, 1)
		refuse("first", 5) // the share is 4
		if res, err := limiter.AllowN(t.Context(), "first", 4); err != nil || !res.Allowed ||
			res.Source != driver.SourceLocal {
			t.Fatalf("%+v, %v; want a local admission", res, err)
		}
		refuse("second", 1)
		refuse("third", 8)
	}
}

// TestDegradedMemory: debts for MaxKeys keys take at most 128 bytes a key besides the debts
// themselves, whatever keys callers send, and however often.
func TestDegradedMemory(t *testing.T) {
	const maxKeys, more, each = 4000, 200, 128 + 1000
	for _, tt := range []struct {
		name      string
		n, from   int // bytes of a key, and of the string that it is cut from
		admission int // keys that find room
	}{
		{"short", 8, 8, maxKeys},
		{"short, of large strings", 16, 16 << 10, maxKeys},
		{"128 bytes, of large strings", 128, 16 << 10, maxKeys},
		{"129 bytes", 129, 129, maxKeys * 128 / 129},
		{"60 KiB", 60 << 10, 60 << 10, maxKeys * 128 / (60 << 10)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key := func(i int) string {
				number := strconv.Itoa(i)
				return (number + strings.Repeat("k", tt.from-len(number)))[:tt.n]
			}
			store := newOutage(t)
			store.mode.Store(gone)
			empty := heap.Live()
			s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2, MaxKeys: maxKeys})
			for i := range tt.admission + more {
				for range 2 {
					d := driver.Demand{Key: key(i), Algorithm: eight, N: 1}
					res, err := s.Take(t.Context(), d)
					if i < tt.admission && (err != nil || !res.Allowed) {
						t.Fatalf("key %d: %+v, %v", i, res, err)
					}
					if i >= tt.admission &&
						(!errors.Is(err, driver.ErrUnavailable) || res.Allowed) {
						t.Fatalf("key %d, for which there is no room: %+v, %v", i, res, err)
					}
				}
			}
			held := heap.Live() - empty
			t.Logf("%d keys of %d bytes hold %d bytes", tt.admission, tt.n, held)
			if held > maxKeys*each {
				t.Errorf("%d bytes are held for %d keys", held, maxKeys)
			}

			// All debts are recorded in the store under their keys, and leave room.
			store.mode.Store(up)
			for start := time.Now(); s.Stats().Pending > 0; time.Sleep(time.Millisecond) {
				if time.Since(start) > time.Minute {
					t.Fatalf("%+v", s.Stats())
				}
			}
			for _, i := range []int{0, tt.admission - 1} {
				d := driver.Demand{Key: key(i), Algorithm: eight, Op: driver.OpPeek, N: 1}
				if res, err := store.Store.Take(context.Background(), d); err != nil ||
					res.Remaining != 6 {
					t.Errorf("key %d in the store: %+v, %v", i, res, err)
				}
			}
			store.mode.Store(gone)
			for i := range tt.admission {
				if res, err := s.Take(t.Context(),
					driver.Demand{Key: key(i), Algorithm: eight, N: 1}); err != nil ||
					!res.Allowed {
					t.Fatalf("key %d, after debts were recorded: %+v, %v", i, res, err)
				}
			}
		})
	}
}

// TestDegradedHoldMemory: a hold takes at most 100 bytes while the store has it too, and 400 bytes
// when the store is still to be told of it, with RATELIMIT_FULL for a million holds.
func TestDegradedHoldMemory(t *testing.T) {
	holds, perKey := depth.Of(10_000, 1_000_000), depth.Of(500, 10_000)
	store := newOutage(t)
	s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
	calls := algorithm.InFlight("calls", 1<<30).WithTimeout(24 * time.Hour)
	ask := func(d driver.Demand, from driver.Store) {
		for i := range holds {
			d.Key, d.ID = strconv.Itoa(i/perKey), uint64(i)*0x9e3779b97f4a7c15+1
			res, err := from.Take(t.Context(), d)
			if err != nil || res.Units != 1 && d.Op == driver.OpHold {
				t.Fatalf("hold %d: %+v, %v", i, res, err)
			}
		}
	}
	hold := driver.Demand{Algorithm: calls, Op: driver.OpHold, N: 1}
	empty := heap.Live()
	ask(hold, store.Store)
	inStore := heap.Live() - empty
	ask(hold, s)
	mirrored := heap.Live() - empty - inStore
	store.mode.Store(gone)
	hold.N = 0
	ask(hold, s)
	pending := heap.Live() - empty - inStore - mirrored
	n := int64(holds)
	t.Logf("%d holds: %d bytes each in the store, as many as %d mirrored, %d more to be told",
		n, inStore/n, mirrored/n, pending/n)
	if mirrored > 100*n || pending > 300*n || s.Stats().Holds != n {
		t.Errorf("%+v", s.Stats())
	}
	hold.Op = driver.OpSettle
	ask(hold, s)
	store.mode.Store(up)
	for start := time.Now(); s.Stats().Holds > 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("%+v", s.Stats())
		}
	}
	if st := s.Stats(); st.Lost != 0 || st.Pending != 0 {
		t.Errorf("%+v", st)
	}
}

// TestDegradedHoldKeys: there is room for the key of a hold and of the debt that it may become.
func TestDegradedHoldKeys(t *testing.T) {
	store := newOutage(t)
	s := newDegraded(t, store, &layer.DegradedOptions{Instances: 1, MaxKeys: 10})
	store.mode.Store(gone)
	hold := driver.Demand{Algorithm: algorithm.InFlight("calls", 2), Op: driver.OpHold, N: 1, ID: 1}
	for i := range 6 {
		hold.Key = strconv.Itoa(i) + strings.Repeat("k", 127)
		_, err := s.Take(t.Context(), hold)
		if full := i == 5; errors.Is(err, driver.ErrCapacity) != full {
			t.Errorf("hold %d: %v", i, err)
		}
	}
	hold.ID, hold.Key = 2, "0"+strings.Repeat("k", 127)
	if res, err := s.Take(t.Context(), hold); err != nil || res.Units != 1 {
		t.Errorf("a second hold of a key: %+v, %v", res, err)
	}
}
