package servers

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// MigrateSlot begins to move key's slot to another primary and does not finish.
func MigrateSlot(
	t *testing.T, client *redis.ClusterClient, key string,
) (from, to *redis.Client, others []*redis.Client) {
	t.Helper()
	ctx := t.Context()
	from, err := client.MasterForKey(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	if err := client.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case node == from:
		case to == nil:
			to = node
		default:
			others = append(others, node)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slot := from.ClusterKeySlot(ctx, key).Val()
	fromID, toID := from.Do(ctx, "CLUSTER", "MYID").Val(), to.Do(ctx, "CLUSTER", "MYID").Val()
	if err := to.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID).Err(); err != nil {
		t.Fatal(err)
	}
	if err := from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID).Err(); err != nil {
		t.Fatal(err)
	}
	return from, to, others
}
