package topkeys_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/heap"
	"github.com/truewindow/ratelimit/topkeys"
)

type testClock struct{ t time.Time }

func (c *testClock) now() time.Time { return c.t }

func newSketch(t testing.TB, opts *topkeys.Options) *topkeys.Sketch {
	t.Helper()
	s, err := topkeys.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// refused is the observation of a take that a limit refused.
func refused(limit, key string) ratelimit.Observation {
	return ratelimit.Observation{
		Key: key, Op: driver.OpTake, N: 1,
		Limits:  []ratelimit.Limit{{Name: limit, Max: 1, Window: time.Second}},
		Results: []ratelimit.Result{{Limit: driver.Limit{Max: 1}, RetryAfter: time.Second}},
	}
}

func refuse(t *testing.T, s *topkeys.Sketch, limit, key string, times int) {
	for range times {
		s.Observe(t.Context(), refused(limit, key))
	}
}

// names returns the names in the list of a limit, with their counts rounded to whole numbers.
func names(top []topkeys.Limit, limit string) (names []string) {
	for _, l := range top {
		for _, k := range l.Keys {
			if l.Name == limit {
				names = append(names, fmt.Sprintf("%s=%.0f", k.Name, k.Count))
			}
		}
	}
	return names
}

func TestInvalidOptions(t *testing.T) {
	secret := make([]byte, topkeys.MinSecret)
	for _, opts := range []*topkeys.Options{
		{Size: -1}, {Size: topkeys.MaxSize + 1}, {HalfLife: -1}, {Secret: []byte{}},
		{Secret: secret[1:]}, {Secret: secret, Plain: true},
	} {
		if _, err := topkeys.New(opts); !errors.Is(err, ratelimit.ErrInvalid) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
	for _, opts := range []*topkeys.Options{
		nil, {}, {Size: topkeys.MaxSize, HalfLife: 1, Secret: secret}, {Size: 1, Plain: true},
	} {
		if _, err := topkeys.New(opts); err != nil {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}

// TestWhatCounts: a refusal counts for each limit that refuses the call.
func TestWhatCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		limiter, err := ratelimit.New(store,
			algorithm.SlidingLog(ratelimit.PerHour("hour", 2)),
			algorithm.SlidingLog(ratelimit.PerDay("day", 3)))
		if err != nil {
			t.Fatal(err)
		}
		sketch := newSketch(t, &topkeys.Options{Plain: true})
		limiter = limiter.WithObserver(sketch.Observe)
		ctx := t.Context()
		expect := func(what string, hour, day []string) {
			t.Helper()
			top := sketch.Top()
			if !reflect.DeepEqual(names(top, "hour"), hour) ||
				!reflect.DeepEqual(names(top, "day"), day) {
				t.Fatalf("after %s: %+v", what, top)
			}
		}
		expect("nothing", nil, nil)
		for range 2 {
			_, _ = limiter.Allow(ctx, "a")
		}
		_, _ = limiter.Peek(ctx, "b")
		_, _ = limiter.Force(ctx, "b", 2)
		_ = limiter.Reset(ctx, "b")
		expect("admissions", nil, nil)
		_, _ = limiter.Peek(ctx, "a")
		expect("a refusal", []string{"a=1"}, nil)
		_, _ = limiter.AllowN(ctx, "a", 2)
		expect("a refusal by both", []string{"a=2"}, []string{"a=1"})
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := limiter.Wait(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		expect("a wait that was given up", []string{"a=3"}, []string{"a=1"})
		if _, err := limiter.AllowN(ctx, "a", 9); !errors.Is(err, ratelimit.ErrExceedsLimit) {
			t.Fatal(err)
		}
		_ = store.Close()
		if _, err := limiter.Allow(ctx, "a"); !errors.Is(err, driver.ErrClosed) {
			t.Fatal(err)
		}
		expect("errors", []string{"a=3"}, []string{"a=1"})
	})
}

// TestMostRefusedNow: refusals decay, so a key that is refused now passes one that was refused
// before.
func TestMostRefusedNow(t *testing.T) {
	clock := &testClock{time.Unix(1e9, 0)}
	sketch := newSketch(t, &topkeys.Options{HalfLife: time.Hour, Plain: true, Now: clock.now})
	expect := func(want ...string) {
		t.Helper()
		if got := names(sketch.Top(), "limit"); !reflect.DeepEqual(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	refuse(t, sketch, "limit", "early", 100)
	refuse(t, sketch, "limit", "other", 60)
	expect("early=100", "other=60")
	clock.t = clock.t.Add(time.Hour)
	expect("early=50", "other=30")
	refuse(t, sketch, "limit", "late", 60)
	expect("late=60", "early=50", "other=30")
	clock.t = clock.t.Add(-time.Hour)
	expect("late=60", "early=50", "other=30")
	clock.t = clock.t.Add(3 * time.Hour)
	expect("late=15", "early=12", "other=8")
	clock.t = clock.t.Add(20 * time.Hour)
	if top := sketch.Top(); len(top) != 1 || len(top[0].Keys) != 0 || top[0].Refusals > .001 {
		t.Fatalf("%+v", top)
	}
	refuse(t, sketch, "limit", "late", 2)
	expect("late=2")
	clock.t = clock.t.Add(math.MaxInt64)
	expect()
	refuse(t, sketch, "limit", "last", 3)
	expect("last=3")
}

// TestNames: names are keyed hashes, or with Plain the keys.
func TestNames(t *testing.T) {
	const key = "user:42"
	list := func(s *topkeys.Sketch, key string) string {
		refuse(t, s, "limit", key, 1)
		if name := s.Name(key); !strings.HasPrefix(names(s.Top(), "limit")[0], name+"=") {
			t.Errorf("Name is %q, the list has %v", name, s.Top())
		}
		return s.Name(key)
	}
	random := list(newSketch(t, nil), key)
	if len(random) != 32 || random == list(newSketch(t, nil), key) {
		t.Errorf("names are not of 16 bytes, or the same in all sketches: %s", random)
	}
	secret := []byte("a secret of the operator")
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(key))
	want := fmt.Sprintf("%x", mac.Sum(nil)[:16])
	sketch := newSketch(t, &topkeys.Options{Secret: secret})
	clear(secret)
	if got := list(sketch, key); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	long := strings.Repeat("x", 1000)
	for _, plain := range []bool{false, true} {
		s := newSketch(t, &topkeys.Options{Plain: plain})
		if a, b := list(s, long+"a"), s.Name(long+"b"); a == b || len(a) > 129 {
			t.Errorf("plain=%t: long keys are named %q and %q", plain, a, b)
		}
	}
	if got := list(newSketch(t, &topkeys.Options{Plain: true}), key); got != key {
		t.Errorf("a plain name is %q", got)
	}
}

// TestManyLimits: the first 1,000 limits have a list of their own.
func TestManyLimits(t *testing.T) {
	sketch := newSketch(t, &topkeys.Options{Plain: true})
	for i := range 1010 {
		refuse(t, sketch, strconv.Itoa(i), "a", 1)
	}
	refuse(t, sketch, "7", "a", 1)
	top := sketch.Top()
	if len(top) != 1001 || !reflect.DeepEqual(names(top, "7"), []string{"a=2"}) ||
		!reflect.DeepEqual(names(top, "_other"), []string{"a=10"}) {
		t.Errorf("%d limits: %v, %v", len(top), names(top, "7"), names(top, "_other"))
	}
}

// TestSimultaneousUse loses no refusal of any goroutine.
func TestSimultaneousUse(t *testing.T) {
	const goroutines, rounds, keys = 8, 500, 20
	clock := &testClock{time.Unix(1e9, 0)}
	sketch := newSketch(t, &topkeys.Options{Size: keys, Plain: true, Now: clock.now})
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := range rounds * keys {
				sketch.Observe(t.Context(), refused("limit "+strconv.Itoa(i%2),
					strconv.Itoa(i%keys)))
				if i%1000 == 0 {
					sketch.Top()
				}
			}
		})
	}
	wg.Wait()
	top := sketch.Top()
	if len(top) != 2 {
		t.Fatalf("%d limits", len(top))
	}
	for _, limit := range top {
		if limit.Refusals != goroutines*rounds*keys/2 || len(limit.Keys) != keys/2 {
			t.Errorf("%s: %v refusals, %d keys", limit.Name, limit.Refusals, len(limit.Keys))
		}
		for _, k := range limit.Keys {
			if k.Count != goroutines*rounds || k.Error != 0 {
				t.Errorf("%s: %+v", limit.Name, k)
			}
		}
	}
}

// TestMemory: the memory of a sketch is bounded, however many and long the keys are.
func TestMemory(t *testing.T) {
	const size, perKey = 10_000, 400
	before := heap.Live()
	sketch := newSketch(t, &topkeys.Options{Size: size})
	long := strings.Repeat("x", 10_000)
	for i := range 5 * size {
		refuse(t, sketch, "limit", long[:100]+strconv.Itoa(i), 1)
	}
	refuse(t, sketch, "limit", long, 1)
	held := heap.Live() - before
	t.Logf("%d bytes for each of %d keys", held/size, size)
	if held > size*perKey {
		t.Errorf("%d bytes for each key, want at most %d", held/size, perKey)
	}
	if len(sketch.Top()[0].Keys) != size {
		t.Error("the sketch is not full")
	}
}

// TestKey: the name of a key in the list leads back to the key, and other names do not.
func TestKey(t *testing.T) {
	long := strings.Repeat("k", 129)
	for _, plain := range []bool{false, true} {
		sketch := newSketch(t, &topkeys.Options{Plain: plain})
		for _, key := range []string{"ann", "bob", long} {
			sketch.Observe(t.Context(), refused("limit", key))
		}
		for _, key := range []string{"ann", "bob"} {
			if got, ok := sketch.Key("limit", sketch.Name(key)); got != key || !ok {
				t.Errorf("%q, %t, want %q", got, ok, key)
			}
		}
		for limit, key := range map[string]string{"limit": "eve", "other": "ann", "limit ": "bob"} {
			if got, ok := sketch.Key(limit, sketch.Name(key)); ok {
				t.Errorf("%s has %q", limit, got)
			}
		}
		if got, ok := sketch.Key("limit", sketch.Name(long)); ok {
			t.Errorf("a long key is %q", got)
		}
	}
}
