package stores

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestOpenURL: each part and parameter of a URL has its effect on the store.
func TestOpenURL(t *testing.T) {
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		for _, tt := range []struct {
			scheme, params string
			cached         bool
		}{
			{"redis", "", false},
			{"rueidis", "", true},
			{"rueidis", "&cache-entries=0", false},
			{"valkey", "&cache-entries=10&cache-bytes=10000&cache-age=1h", true},
			{"valkey", "&cache-entries=0", false},
		} {
			t.Run(tt.scheme+tt.params, func(t *testing.T) {
				const db = 3
				user := fmt.Sprint("user", servers.FreshNumber())
				grant(t, tgt, user, "p@ss/w:rd?")
				prefix := servers.UniquePrefix()
				host, path := tgt.Addrs[0], fmt.Sprint("/", db)
				if tgt.Cluster {
					tt.scheme += "+cluster"
					host, path = strings.Join(tgt.Addrs, ","), ""
				}
				url := fmt.Sprintf("%s://%s:p%%40ss%%2Fw:rd%%3F@%s%s?timeout=%v&tag=:&prefix=%s%s",
					tt.scheme, user, host, path, clients.Patient, prefix, tt.params)
				s, err := backend.Open(t.Context(), url)
				if err != nil {
					t.Fatal(err)
				}
				checkOpened(t, s, tt.cached)
				if !tgt.Cluster {
					checkStored(t, tgt.Addrs[0], db, prefix)
				}
				if connections(t, tgt, user) == 0 {
					t.Error("the user has no connection, want some")
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				closed := func() bool { return connections(t, tgt, user) == 0 }
				servers.Within(t, closed, "connections are left open")
			})
		}
	})
}

// checkOpened checks the decisions of s, in which keys with the same part before ":" share a slot.
func checkOpened(t *testing.T, s *backend.Store, cached bool) {
	t.Helper()
	if server, err := s.Probe(t.Context()); err != nil || server.Version == "" {
		t.Errorf("Probe: got %+v, %v; want a version", server, err)
	}
	together := []driver.Demand{clients.Take("a:1"), clients.Take("a:2")}
	out := make([]ratelimit.Result, len(together))
	if err := s.TakeAll(t.Context(), together, out); err != nil || !out[0].Allowed {
		t.Errorf("TakeAll: got %+v, %v; want an admission", out, err)
	}
	d := driver.Demand{Key: "k", Algorithm: clients.ThreeAnHour, N: 3}
	if res := clients.Ask(t, s, d); !res.Allowed {
		t.Errorf("got %+v, want an admission", res)
	}
	clients.WantRefused(t, s, d, ratelimit.SourceStore)
	source := ratelimit.SourceStore
	if cached {
		source = ratelimit.SourceCache
		isCached := func() bool { return clients.Ask(t, s, d).Source == source }
		servers.Within(t, isCached, "no refusal was cached")
	}
	clients.WantRefused(t, s, d, source)
	stats, ok := s.Stats().(serverstore.Stats)
	if !ok || stats.Cache.Enabled != cached {
		t.Errorf("got %+v, want a cache: %t", s.Stats(), cached)
	}
}

// grant adds a user with all rights.
func grant(t *testing.T, tgt *servers.Target, user, password string) {
	t.Helper()
	onPrimaries(t, tgt, "ACL", "SETUSER", user, "on", ">"+password, "~*", "&*", "+@all")
}

// connections returns the number of connections of a user.
func connections(t *testing.T, tgt *servers.Target, user string) int {
	t.Helper()
	return strings.Count(onPrimaries(t, tgt, "CLIENT", "LIST"), " user="+user+" ")
}

// onPrimaries runs a command on each primary of tgt and returns all replies.
func onPrimaries(t *testing.T, tgt *servers.Target, args ...any) string {
	t.Helper()
	var mu sync.Mutex
	var replies strings.Builder
	run := func(ctx context.Context, node *redis.Client) error {
		reply, err := node.Do(ctx, args...).Text()
		mu.Lock()
		defer mu.Unlock()
		replies.WriteString(reply)
		return err
	}
	var err error
	client := tgt.Open()
	defer client.Close()
	switch client := client.(type) {
	case *redis.ClusterClient:
		err = client.ForEachMaster(t.Context(), run)
	case *redis.Client:
		err = run(t.Context(), client)
	}
	if err != nil {
		t.Fatal(err)
	}
	return replies.String()
}

// checkStored checks that states are stored in the database, with the prefix and the tags.
func checkStored(t *testing.T, addr string, db int, prefix string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, DB: db})
	defer client.Close()
	for group, want := range map[string]int{"a": 2, "k": 1} {
		keys, err := client.Keys(t.Context(), prefix+"{="+group+"}*").Result()
		if err != nil || len(keys) != want {
			t.Errorf("group %q: got keys %q, %v; want %d", group, keys, err, want)
		}
	}
}
