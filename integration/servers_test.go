package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestTargetServesAllSlots(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		c := tgt.client(t)
		for i := range 100 {
			if err := c.Set(t.Context(), fmt.Sprintf("slots:%d", i), i, time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestDropScripts(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		c := tgt.client(t)
		load := func(ctx context.Context, node redis.UniversalClient) (string, error) {
			return node.ScriptLoad(ctx, "return 'dropped'").Result()
		}
		sha, err := load(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if err := dropScripts(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		for i := range 20 { // keys of all primaries
			err := c.EvalSha(t.Context(), sha, []string{fmt.Sprintf("scripts:%d", i)}).Err()
			if !redis.HasErrorPrefix(err, "NOSCRIPT") {
				t.Fatalf("script after dropScripts: %v, want NOSCRIPT", err)
			}
		}
	})
}

func TestServerFaults(t *testing.T) {
	s := startServer(t, images[len(images)-1])
	c := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, DialerRetries: 1, ReadTimeout: 200 * time.Millisecond})
	defer c.Close()
	alive := func(want bool, after string) {
		t.Helper()
		got, err := c.Get(t.Context(), "kept").Result()
		if (err == nil && got == "yes") != want {
			t.Fatalf("after %s: %q, %v; alive should be %v", after, got, err, want)
		}
	}
	if err := c.Set(t.Context(), "kept", "yes", 0).Err(); err != nil {
		t.Fatal(err)
	}
	alive(true, "start")
	s.pause(t)
	alive(false, "pause")
	s.unpause(t)
	alive(true, "unpause")
	s.stop(t)
	alive(false, "stop")
	s.start(t)
	alive(true, "stop and start")
	s.kill(t)
	alive(false, "kill")
	s.start(t)
	alive(true, "kill and start")
}

func TestClusterNodeComesBack(t *testing.T) {
	t.Parallel()
	cl := startCluster(t, images[0])
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cl.addrs()})
	defer c.Close()
	cl.nodes[1].stop(t)
	cl.nodes[1].start(t)
	ctx, cancel := context.WithTimeout(t.Context(), clusterTimeout)
	defer cancel()
	for i := range 20 {
		if err := poll(ctx, func() (bool, error) {
			err := c.Set(ctx, fmt.Sprintf("back:%d", i), i, 0).Err()
			return err == nil, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
