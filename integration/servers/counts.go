package servers

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// CountScripts returns how many scripts the servers behind c have run so far.
func CountScripts(t testing.TB, c redis.UniversalClient) (sum int64) {
	t.Helper()
	var mu sync.Mutex
	count := func(ctx context.Context, node *redis.Client) error {
		stats, err := node.InfoMap(ctx, "commandstats").Result()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, command := range []string{"eval", "evalsha"} {
			stat := stats["Commandstats"]["cmdstat_"+command]
			calls, _, _ := strings.Cut(strings.TrimPrefix(stat, "calls="), ",")
			var n int64
			if stat != "" {
				if n, err = strconv.ParseInt(calls, 10, 64); err != nil {
					return err
				}
			}
			sum += n
		}
		return nil
	}
	var err error
	if cluster, ok := c.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(t.Context(), count)
	} else {
		err = count(t.Context(), c.(*redis.Client))
	}
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// CountWrites returns how many writing commands the servers behind c have run so far, including
// those of scripts and excluding the expiry of keys.
func CountWrites(ctx context.Context, c redis.UniversalClient) (int64, error) {
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

// DropScripts makes the server, or each primary of a cluster, forget all scripts.
func DropScripts(ctx context.Context, c redis.UniversalClient) error {
	if cc, ok := c.(*redis.ClusterClient); ok {
		return cc.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return node.ScriptFlush(ctx).Err()
		})
	}
	return c.ScriptFlush(ctx).Err()
}
