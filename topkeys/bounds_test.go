package topkeys_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/topkeys"
)

const halfLife = time.Minute

// A refusal is a refusal of key, some time after the one before.
type refusal struct {
	key   string
	after time.Duration
}

// count is the exact count of a key, or of all keys.
type count struct {
	value float64
	at    time.Time
}

// add decays c to an instant and adds n.
func (c *count) add(n float64, at time.Time) {
	c.value = c.value*math.Exp2(-float64(at.Sub(c.at))/float64(halfLife)) + n
	c.at = at
}

// checkBounds refuses keys on a sketch of a size, and compares its list with exact counts.
func checkBounds(t *testing.T, size int, refusals []refusal) {
	t.Helper()
	clock := &testClock{time.Unix(1e9, 0)}
	sketch := newSketch(t, &topkeys.Options{
		Size: size, HalfLife: halfLife, Plain: true, Now: clock.now})
	exact := map[string]*count{}
	latest := clock.now()
	all := &count{at: latest}
	for _, r := range refusals {
		clock.t = clock.t.Add(r.after)
		sketch.Observe(t.Context(), refused("limit", r.key))
		if clock.t.After(latest) {
			latest = clock.t
		}
		if exact[r.key] == nil {
			exact[r.key] = &count{at: latest}
		}
		exact[r.key].add(1, latest)
		all.add(1, latest)
	}
	for _, c := range exact {
		c.add(0, latest)
	}
	if err := compare(sketch.Top(), size, exact, all.value); err != nil {
		t.Fatal(err)
	}
}

// compare returns an error if the list is not as the documentation says.
func compare(top []topkeys.Limit, size int, exact map[string]*count, all float64) error {
	if len(top) != 1 {
		return fmt.Errorf("%d limits", len(top))
	}
	limit := top[0]
	rounding := 1e-9 * max(all, 1)
	share := limit.Refusals/float64(size) + rounding
	if math.Abs(limit.Refusals-all) > rounding {
		return fmt.Errorf("%v refusals, want %v", limit.Refusals, all)
	}
	if len(limit.Keys) > size {
		return fmt.Errorf("%d keys on a sketch of %d", len(limit.Keys), size)
	}
	listed := map[string]bool{}
	for i, k := range limit.Keys {
		listed[k.Name] = true
		switch c := exact[k.Name]; {
		case c == nil:
			return fmt.Errorf("%+v was never refused", k)
		case c.value > k.Count+rounding || c.value < k.Count-k.Error-rounding:
			return fmt.Errorf("%+v, but the count is %v", k, c.value)
		case k.Error > share:
			return fmt.Errorf("%+v has an error above %v", k, share)
		case k.Error != 0 && len(exact) <= size:
			return fmt.Errorf("%+v has an error on a sketch with room for all keys", k)
		case i > 0 && k.Count > limit.Keys[i-1].Count:
			return fmt.Errorf("%+v is below a lower count", k)
		}
	}
	if len(listed) != len(limit.Keys) {
		return fmt.Errorf("a key is listed twice: %+v", limit.Keys)
	}
	for key, c := range exact {
		if !listed[key] && c.value > share && c.value > .001+rounding {
			return fmt.Errorf("%q with a count of %v is not listed", key, c.value)
		}
	}
	return nil
}

// TestBounds checks the documented bounds with few and many keys, skewed and not, quick and slow.
func TestBounds(t *testing.T) {
	for _, size := range []int{1, 2, 10, 100} {
		for _, keys := range []uint64{1, 10, 100, 2000} {
			for _, skew := range []float64{1.01, 1.5, 3} {
				for _, pause := range []time.Duration{0, time.Second, 10 * time.Second, time.Hour} {
					name := fmt.Sprintf("size=%d,keys=%d,skew=%v,pause=%v", size, keys, skew, pause)
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						random := rand.New(rand.NewPCG(uint64(size), keys))
						zipf := rand.NewZipf(random, skew, 1, keys-1)
						refusals := make([]refusal, 2000)
						for i := range refusals {
							refusals[i].key = strconv.FormatUint(zipf.Uint64(), 10)
							if pause > 0 {
								refusals[i].after = time.Duration(random.Int64N(2 * int64(pause)))
							}
						}
						checkBounds(t, size, refusals)
					})
				}
			}
		}
	}
}

// TestBoundsAtWorst refuses each key once, except for one key. Then the errors are largest.
func TestBoundsAtWorst(t *testing.T) {
	const size = 10
	for _, every := range []int{2, size - 1, size, size + 1} {
		refusals := make([]refusal, 3000)
		for i := range refusals {
			refusals[i].key = strconv.Itoa(i)
			if i%every == 0 {
				refusals[i].key = "often"
			}
		}
		checkBounds(t, size, refusals)
		slices.Reverse(refusals)
		checkBounds(t, size, refusals)
	}
}

// FuzzBounds reads a size and then refusals: a byte with the key and a byte with the pause.
func FuzzBounds(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 3 {
			return
		}
		size := 1 + int(data[0]%8)
		var refusals []refusal
		for pair := range slices.Chunk(data[1:], 2) {
			if len(pair) < 2 {
				break
			}
			after := time.Duration(0)
			if pair[1] > 0 {
				after = time.Millisecond << (pair[1] % 28) // up to 37 hours
			}
			if pair[1] > 200 {
				after = -after
			}
			refusals = append(refusals, refusal{strconv.Itoa(int(pair[0])), after})
		}
		checkBounds(t, size, refusals)
	})
}
