package integration

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/conformance/linear"
)

// TestConformance runs the suite with every client library on every target: one TakeAll for each slot, and all keys in one slot. With RATELIMIT_FULL
// set it does so with and without a cache of refusals, with demands that travel together and alone, and in layers; without, with less of it on
// each target and all of it on some.
func TestConformance(t *testing.T) {
	t.Parallel() // it mostly waits for answers
	eachOwnTarget(t, func(t *testing.T, tgt *target, lib library) {
		for _, c := range conformanceCases(tgt, lib) {
			t.Run(c.name, func(t *testing.T) { c.run(t, tgt, lib) })
		}
	})
}

type conformanceCase struct {
	name          string
	tag           bool // all keys in one slot
	cached, alone bool
	layers        bool // around the store
}

func conformanceCases(tgt *target, lib library) (cases []conformanceCase) {
	for _, tag := range []bool{false, true} {
		for _, cached := range []bool{false, true} {
			for _, alone := range []bool{false, true} {
				c := conformanceCase{name: "keys", tag: tag, cached: cached, alone: alone}
				if tag {
					c.name = "tag"
				}
				if cached {
					c.name += "-cached"
				}
				if alone {
					c.name += "-alone"
				}
				possible := (tgt.cluster || !tag) && (lib.caching != nil || !cached)
				if possible && (full || c.usual(tgt, lib)) {
					cases = append(cases, c)
				}
			}
		}
	}
	if full && !tgt.cluster || tgt.name == images[len(images)-1] && lib.name == libraries[0].name {
		cases = append(cases, conformanceCase{name: "keys-layers", layers: true})
	}
	return cases
}

// usual tells which combinations are tried at every commit: each pair of library and image, and of the rest each at least once.
func (c conformanceCase) usual(tgt *target, lib library) bool {
	newest := tgt.image == images[len(images)-1]
	first := lib.name == libraries[0].name
	switch {
	case c.cached && (c.alone || tgt.cluster):
		return newest && !c.tag && c.alone != tgt.cluster && lib.name == "rueidis"
	case c.cached:
		return newest || (tgt.image == images[0]) == (lib.name == "rueidis")
	case c.alone:
		return newest && !tgt.cluster && first
	case tgt.cluster && c.tag:
		return newest && first
	case tgt.cluster:
		return newest || first
	}
	return true
}

func (c conformanceCase) run(t *testing.T, tgt *target, lib library) {
	control := tgt.client(t)
	opts := redisstore.Options{Timeout: patient, Alone: c.alone}
	except := map[string]string{}
	if c.tag {
		opts.Tag = func(string) string { return "one slot" }
	} else if tgt.cluster {
		except["takeall-keys"] = "a cluster decides keys together only in one slot"
	}
	var served atomic.Int64 // from caches
	conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
		ran.add(tgt.name)
		opts := opts
		opts.Prefix, opts.Now = uniquePrefix(), now
		h := conformance.Harness{
			DropScripts: func() error { return dropScripts(context.Background(), control) },
			Writes:      func() (int64, error) { return countWrites(context.Background(), control) },
		}
		if c.cached {
			c.harnessCached(t, tgt, lib, &opts, &h, &served)
			return h
		}
		client := lib.client(t, tgt.dialing())
		h.Store, h.Close = client.newStore(t, &opts), client.closeAll
		h.Second = func(t testing.TB) ratelimit.Store { return lib.client(t, tgt.dialing()).newStore(t, &opts) }
		if c.layers {
			h.Store = inLayers(t, h.Store)
			second := h.Second
			h.Second = func(t testing.TB) ratelimit.Store { return inLayers(t, second(t)) }
		}
		return h
	}, &conformance.Options{CheckHistory: linear.Check, Except: except})
	if c.cached && served.Load() == 0 {
		t.Error("no refusal came from a cache")
	}
}

func (c conformanceCase) harnessCached(t testing.TB, tgt *target, lib library, opts *redisstore.Options, h *conformance.Harness, served *atomic.Int64) {
	// With one connection to a server, an answer on it comes after what the server told before.
	dial := tgt.dialing()
	dial.multiplex, dial.patient = -1, true
	open := lib.caching(dial)
	stores := []caching{open.store(t, opts)}
	t.Cleanup(func() {
		for _, s := range stores {
			served.Add(s.CacheStats().Refusals)
		}
	})
	h.Store = stores[0]
	h.Close = func() error { stores[0].Close(); return nil }
	h.Second = func(t testing.TB) ratelimit.Store {
		stores = append(stores, open.store(t, opts))
		return stores[1]
	}
	keys := tgt.keyOfEachServer(t, opts.Tag != nil)
	h.Settle = func() error {
		for _, s := range stores {
			for _, key := range keys {
				d := ratelimit.Demand{Key: key, Algorithm: algorithm.SlidingLog(ratelimit.PerMinute(1)), Op: ratelimit.Look, N: 1}
				if _, err := s.Take(context.Background(), d); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// keyOfEachServer returns keys of which each primary of a cluster has one; one key, if all are in one slot anyway.
func (tgt *target) keyOfEachServer(t testing.TB, oneSlot bool) []string {
	t.Helper()
	if !tgt.cluster || oneSlot {
		return []string{"settled"}
	}
	keys := make([]string, clusterPrimaries)
	control := tgt.client(t)
	for i, found := 0, 0; found < len(keys); i++ {
		key := fmt.Sprint("settled", i)
		slot, err := control.ClusterKeySlot(t.Context(), "{="+key+"}").Result()
		if err != nil {
			t.Fatal(err)
		}
		if n := int(slot) * clusterPrimaries / clusterSlots; keys[n] == "" {
			keys[n] = key
			found++
		}
	}
	return keys
}

// countWrites returns how many commands that write the servers behind c have run, those of scripts included and those that expire
// keys not.
func countWrites(ctx context.Context, c redis.UniversalClient) (int64, error) {
	cluster, ok := c.(*redis.ClusterClient)
	if !ok {
		return countServerWrites(ctx, c)
	}
	var mu sync.Mutex
	var sum int64
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		n, err := countServerWrites(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		sum += n
		return err
	})
	return sum, err
}

func countServerWrites(ctx context.Context, c redis.UniversalClient) (int64, error) {
	writing, err := c.Do(ctx, "COMMAND", "LIST", "FILTERBY", "ACLCAT", "write").StringSlice()
	if err != nil {
		return 0, err
	}
	stats, err := c.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, command := range writing {
		_, after, ok := strings.Cut(stats, "cmdstat_"+command+":calls=")
		if !ok {
			continue
		}
		calls, _, _ := strings.Cut(after, ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("INFO commandstats: %w", err)
		}
		sum += n
	}
	return sum, nil
}
