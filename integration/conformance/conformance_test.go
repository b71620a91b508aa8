package conformance

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/conformance/linear"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// TestConformance runs the suite with the client libraries on the targets: with keys in many slots
// (on a cluster without the cases that TakeAll several keys), and on clusters also with all keys in
// one slot. With RATELIMIT_FULL set it runs all combinations of libraries, targets, the cache of
// refusals and batching; without, it runs those of usual.
func TestConformance(t *testing.T) {
	t.Parallel() // mostly waits for answers
	servers.EachOwnTarget(t, func(
		t *testing.T, kind *servers.Target, start func(*testing.T) *servers.Target,
	) {
		clients.Each(t, func(t *testing.T, lib clients.Library) {
			cases := conformanceCases(kind, lib)
			if len(cases) == 0 {
				return
			}
			tgt := start(t)
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) { c.run(t, tgt, lib) })
			}
		})
	})
}

// volumeRules are the cases that make as many calls as they can in a few seconds. Usually they run
// through go-redis on Redis, and where there is only one image through rueidis too.
const volumeRules = "identity/many-keys identity/hashed-keys op/many-records " +
	"concurrency/many-calls takeall/hundreds takeall/storm-of-hundreds " +
	"takeall-keys/hundreds takeall-keys/storm-of-hundreds"

type conformanceCase struct {
	name          string
	tag           bool // all keys in one slot
	cached, alone bool
	layers        bool // around the store
	resp2         bool
	several       string // why the store cannot decide keys together, or ""
	slow          bool   // too slow for volumeRules
}

func conformanceCases(tgt *servers.Target, lib clients.Library) (cases []conformanceCase) {
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
				possible := (tgt.Cluster || !tag) && (lib.Caching != nil || !cached)
				if possible && (depth.Full || c.usual(tgt, lib)) {
					cases = append(cases, c)
				}
			}
		}
	}
	layers := conformanceCase{name: "keys-layers", layers: true}
	if !tgt.Cluster && (depth.Full || layers.usual(tgt, lib)) {
		cases = append(cases, layers)
	}
	return cases
}

// usual are the combinations of a run that is not full, by server and library. Each library runs on
// the newest Redis and on the newest Valkey, and each option is there once, as is a cluster.
var usual = map[string]map[string]string{
	"redis":   {"go-redis": "keys", "rueidis": "keys-cached", "valkey-go": "keys"},
	"valkey":  {"go-redis": "keys-layers", "rueidis": "keys-alone", "valkey-go": "keys-cached"},
	"cluster": {"go-redis": "tag", "rueidis": "keys-cached"},
}

// onlyOne reports whether the run is of one image, which then has what usual spreads over two.
func onlyOne() bool { return len(servers.Images()) == 1 }

func (c conformanceCase) usual(tgt *servers.Target, lib clients.Library) bool {
	kind := "redis"
	switch {
	case tgt.Name == servers.Newest()+" cluster":
		kind = "cluster"
	case tgt.Cluster:
		return false
	case tgt.Image == servers.Newest():
		kind = "valkey"
	}
	return usual[kind][lib.Name] == c.name ||
		onlyOne() && (c.name == "keys" || c.name == "keys-cached")
}

func (c conformanceCase) run(t *testing.T, tgt *servers.Target, lib clients.Library) {
	control := tgt.Client(t)
	opts := serverstore.Options{Timeout: clients.Patient, NoBatching: c.alone}
	except := map[string]string{}
	if c.tag {
		opts.Tag = func(string) string { return "one slot" }
	} else if tgt.Cluster {
		except["takeall-keys"] = "a cluster decides keys together only in one slot"
	} else if c.several != "" {
		except["takeall-keys"] = c.several
	}
	if c.layers {
		maps.Copy(except, clients.ExceptInLayers)
	}
	volume := lib.Name == "go-redis" && c.name == "keys" || lib.Name == "rueidis" && onlyOne()
	if c.slow || !depth.Full && !volume {
		for rule := range strings.FieldsSeq(volumeRules) {
			except[rule] = "tried on the newest server through other clients"
		}
	}
	var served atomic.Int64 // from caches
	conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
		servers.CountTest(t, tgt.Name)
		opts := opts
		opts.Prefix, opts.Now = servers.UniquePrefix(), now
		h := conformance.Harness{
			DropScripts: func() error { return servers.DropScripts(context.Background(), control) },
			Writes: func() (int64, error) {
				return servers.CountWrites(context.Background(), control)
			},
		}
		if c.cached {
			c.harnessCached(t, tgt, lib, &opts, &h, &served)
			return h
		}
		dial := clients.To(tgt)
		dial.RESP2 = c.resp2
		client := lib.Client(t, dial)
		h.Store, h.Close, h.ClosesClient = client.NewStore(t, &opts), client.CloseAll, true
		h.Second = func(t testing.TB) driver.Store {
			return lib.Client(t, dial).NewStore(t, &opts)
		}
		if c.layers {
			h.Store = clients.InLayers(t, h.Store)
			second := h.Second
			h.Second = func(t testing.TB) driver.Store { return clients.InLayers(t, second(t)) }
		}
		return h
	}, &conformance.Options{CheckHistory: linear.Check, Except: except})
	if c.cached && served.Load() == 0 {
		t.Error("no refusal came from a cache, want some")
	}
}

func (c conformanceCase) harnessCached(
	t testing.TB, tgt *servers.Target, lib clients.Library, opts *serverstore.Options,
	h *conformance.Harness, served *atomic.Int64,
) {
	// On a single connection, an answer comes after the invalidations sent before it.
	dial := clients.To(tgt)
	dial.Multiplex, dial.Patient = -1, true
	open := lib.Caching(dial)
	stores := []clients.Caching{open.Store(t, opts)}
	t.Cleanup(func() {
		for _, s := range stores {
			served.Add(s.Stats().Cache.Hits)
		}
	})
	h.Store = stores[0]
	h.Close = stores[0].Close
	h.Second = func(t testing.TB) driver.Store {
		stores = append(stores, open.Store(t, opts))
		return stores[1]
	}
	keys := keyOfEachServer(t, tgt, opts.Tag != nil)
	h.Settle = func() error {
		for _, s := range stores {
			for _, key := range keys {
				d := driver.Demand{Key: key,
					Algorithm: algorithm.SlidingLog(driver.PerMinute("minute", 1)),
					Op:        driver.OpPeek, N: 1}
				if _, err := s.Take(context.Background(), d); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// keyOfEachServer returns one key of each primary of a cluster, or one key if all are in one slot.
func keyOfEachServer(t testing.TB, tgt *servers.Target, oneSlot bool) []string {
	t.Helper()
	if !tgt.Cluster || oneSlot {
		return []string{"settled"}
	}
	keys := make([]string, servers.ClusterPrimaries)
	control := tgt.Client(t)
	for i, found := 0, 0; found < len(keys); i++ {
		key := fmt.Sprint("settled", i)
		slot, err := control.ClusterKeySlot(t.Context(), "{="+key+"}").Result()
		if err != nil {
			t.Fatal(err)
		}
		if n := int(slot) * servers.ClusterPrimaries / servers.ClusterSlots; keys[n] == "" {
			keys[n] = key
			found++
		}
	}
	return keys
}
