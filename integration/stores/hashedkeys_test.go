package stores

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/layer"
)

// TestHashedKeysOnCluster: on a cluster, hashed keys with one tag are decided together, exactly,
// and no key is on a node. If the layer or the store has no tag, several keys are an error.
func TestHashedKeysOnCluster(t *testing.T) {
	t.Parallel()
	servers.OneImage(t, servers.Newest(), func(t *testing.T, image string) {
		addrs := servers.StartCluster(t, image).Addrs()
		clients.Each(t, func(t *testing.T, lib clients.Library) {
			h := &hashedCluster{t, lib.Client(t, clients.Dialing{Addrs: addrs, Cluster: true})}
			h.exact()
			for name, store := range map[string]ratelimit.Store{
				"a tag of the store only": h.store(layer.HashedTag, nil),
				"a tag of the layer only": h.store(nil, tenantOf),
			} {
				if _, err := h.take(store, 0, 0); !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
		if keys := keysOn(t, addrs); strings.Count(keys, "\n") < 50 ||
			strings.Contains(keys, "tenant:") || strings.Contains(keys, "anna") {
			t.Errorf("the nodes have the keys\n%s", keys)
		}
	})
}

// tenantOf is a Tag for keys such as "tenant:7:anna".
func tenantOf(key string) string {
	if i := strings.LastIndexByte(key, ':'); i >= 0 && strings.Count(key, ":") == 2 {
		return key[:i]
	}
	return ""
}

type hashedCluster struct {
	*testing.T
	client clients.Client
}

func (h *hashedCluster) store(tag, ofLayer func(string) string) ratelimit.Store {
	h.Helper()
	inside := h.client.NewStore(h.T, &serverstore.Options{
		Prefix: servers.UniquePrefix(), Timeout: clients.Patient, Tag: tag})
	s, err := layer.NewHashedKeys(inside, []byte("the secret of keys of these tests"))
	if err != nil {
		h.Fatal(err)
	}
	return s.WithTag(ofLayer)
}

const ofTenant, ofUser = 5, 2

// take takes a unit of a tenant and of one of its users together.
func (h *hashedCluster) take(s ratelimit.Store, tenant, user int) (bool, error) {
	limit := func(name string, n int64) *ratelimit.Limiter {
		l, err := ratelimit.New(s, algorithm.SlidingLog(ratelimit.PerHour(name, n)))
		if err != nil {
			h.Error(err)
		}
		return l
	}
	key := fmt.Sprint("tenant:", tenant)
	results, err := ratelimit.AllowAll(context.Background(),
		ratelimit.Claim{Limiter: limit("tenants", ofTenant), Key: key, N: 1},
		ratelimit.Claim{Limiter: limit("users", ofUser), Key: fmt.Sprint(key, ":anna", user), N: 1})
	if err != nil {
		return false, err
	}
	return results[0].Allowed && results[1].Allowed, nil
}

// exact has each of four users of each tenant ask more often than one of the limits admits.
func (h *hashedCluster) exact() {
	s := h.store(layer.HashedTag, tenantOf)
	const tenants, users = 12, 4
	var admitted [tenants]atomic.Int64
	var calls sync.WaitGroup
	for i := range tenants * users * (ofUser + 1) {
		calls.Go(func() {
			ok, err := h.take(s, i%tenants, i/tenants%users)
			if err != nil {
				h.Error(err)
			}
			if ok {
				admitted[i%tenants].Add(1)
			}
		})
	}
	calls.Wait()
	for i := range admitted {
		if n := admitted[i].Load(); n != ofTenant {
			h.Errorf("tenant %d: %d units, want %d", i, n, ofTenant)
		}
	}
}

// keysOn returns all keys of nodes.
func keysOn(t *testing.T, addrs []string) string {
	t.Helper()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer cluster.Close()
	var mu sync.Mutex
	var all strings.Builder
	err := cluster.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		keys, err := node.Keys(ctx, "*").Result()
		mu.Lock()
		defer mu.Unlock()
		all.WriteString(strings.Join(append(keys, ""), "\n"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
