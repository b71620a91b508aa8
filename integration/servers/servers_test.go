package servers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestTargetServesAllSlots(t *testing.T) {
	EachTarget(t, func(t *testing.T, tgt *Target) {
		c := tgt.Client(t)
		for i := range 100 {
			if err := c.Set(t.Context(), fmt.Sprintf("slots:%d", i), i,
				time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestDropScripts(t *testing.T) {
	EachTarget(t, func(t *testing.T, tgt *Target) {
		c := tgt.Client(t)
		load := func(ctx context.Context, node redis.UniversalClient) (string, error) {
			return node.ScriptLoad(ctx, "return 'dropped'").Result()
		}
		sha, err := load(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if err := DropScripts(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		for i := range 20 { // enough keys to reach all primaries
			err := c.EvalSha(t.Context(), sha, []string{fmt.Sprintf("scripts:%d", i)}).Err()
			if !redis.HasErrorPrefix(err, "NOSCRIPT") {
				t.Fatalf("running a dropped script: got %v, want NOSCRIPT", err)
			}
		}
	})
}

func TestServerFaults(t *testing.T) {
	s := Start(t, Newest())
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, DialerRetries: 1,
		ReadTimeout: 200 * time.Millisecond})
	defer c.Close()
	answers := func() bool {
		got, err := c.Get(t.Context(), "kept").Result()
		return err == nil && got == "yes"
	}
	alive := func(want bool, after string) {
		t.Helper()
		if want { // on a busy machine an answer may be late
			Within(t, answers, "no answer after "+after)
		} else if answers() {
			t.Fatalf("got an answer after %s, want none", after)
		}
	}
	if err := c.Set(t.Context(), "kept", "yes", 0).Err(); err != nil {
		t.Fatal(err)
	}
	alive(true, "start")
	s.Pause(t)
	alive(false, "pause")
	s.Unpause(t)
	alive(true, "unpause")
	s.Stop(t)
	alive(false, "stop")
	s.Start(t)
	alive(true, "stop and start")
	s.Kill(t)
	alive(false, "kill")
	s.Start(t)
	alive(true, "kill and start")
}

func TestClusterNodeComesBack(t *testing.T) {
	t.Parallel()
	cl := StartCluster(t, Images()[0])
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cl.Addrs()})
	defer c.Close()
	cl.Nodes[1].Stop(t)
	cl.Nodes[1].Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), clusterTimeout)
	defer cancel()
	for i := range 20 {
		if err := Poll(ctx, func() (bool, error) {
			err := c.Set(ctx, fmt.Sprintf("back:%d", i), i, 0).Err()
			return err == nil, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
