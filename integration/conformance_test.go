package integration

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/conformance/linear"
)

func TestRedisStoreConformance(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		eachLibrary(t, func(t *testing.T, lib library) {
			if !tgt.cluster {
				runConformance(t, tgt, lib, redisstore.Options{}, nil)
				return
			}
			t.Run("keys", func(t *testing.T) {
				runConformance(t, tgt, lib, redisstore.Options{}, map[string]string{
					"takeall-keys": "a cluster decides keys together only in one slot",
				})
			})
			t.Run("tag", func(t *testing.T) {
				runConformance(t, tgt, lib, redisstore.Options{Tag: func(string) string { return "one slot" }}, nil)
			})
		})
	})
}

// TestAloneConformance is the same with each demand in a call of its own.
func TestAloneConformance(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		if !tgt.cluster {
			runConformance(t, tgt, libraries[0], redisstore.Options{Alone: true}, nil)
		}
	})
}

// runConformance runs the suite on stores with options opts but for their Prefix, Timeout and Now.
func runConformance(t *testing.T, tgt *target, lib library, opts redisstore.Options, except map[string]string) {
	control := tgt.client(t)
	conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
		ran.add(tgt.name)
		opts := opts
		opts.Prefix, opts.Timeout, opts.Now = uniquePrefix(), patient, now
		client := lib.client(t, tgt.dialing())
		return conformance.Harness{
			Store: client.newStore(t, &opts),
			Second: func(t testing.TB) ratelimit.Store {
				return lib.client(t, tgt.dialing()).newStore(t, &opts)
			},
			DropScripts: func() error { return dropScripts(context.Background(), control) },
			Writes:      func() (int64, error) { return countWrites(context.Background(), control) },
			Close:       client.closeAll,
		}
	}, &conformance.Options{CheckHistory: linear.Check, Except: except})
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
