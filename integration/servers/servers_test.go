package servers

import (
	"context"
	"fmt"
	"strings"
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

// TestDialect holds that each dialect refuses what it says, and nothing else.
func TestDialect(t *testing.T) {
	addr := Start(t, Newest()).Addr
	const (
		own    = "return redis.call('SET', KEYS[1], 'x').ok"
		other  = "return redis.call('EXISTS', ARGV[1])"
		caught = "return redis.pcall('EXISTS', ARGV[1])"
		clock  = "return redis.call('TIME')[1]"
		pack   = "return struct.pack('>I2', 258)"
	)
	for _, tt := range []struct {
		dialect Dialect
		refuses map[string]string // the error of each script that is refused
	}{
		{Dialect{}, nil},
		{Dialect{Declared: true}, map[string]string{other: "undeclared", caught: "undeclared"}},
		{Dialect{NoTime: true}, map[string]string{clock: "not allowed from script"}},
		{Dialect{NoStruct: true}, map[string]string{pack: "index"}},
	} {
		c := Connect(t, tt.dialect.Speak(t, addr))
		for _, script := range []string{own, other, caught, clock, pack} {
			want := tt.refuses[script]
			named := redis.NewScript(script)
			for range 2 { // by EVAL and then by EVALSHA
				err := named.Run(t.Context(), c, []string{"k"}, "other").Err()
				if want == "" && err != nil || !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("%+v, %s: got %v, want %q", tt.dialect, script, err, want)
				}
			}
		}
	}
	c := Connect(t, Dialect{Forgetful: true}.Speak(t, addr))
	named := redis.NewScript(own)
	unknown := 0
	if err := named.Eval(t.Context(), c, []string{"k"}).Err(); err != nil {
		t.Fatal(err)
	}
	for range 9 {
		if redis.HasErrorPrefix(named.EvalSha(t.Context(), c, []string{"k"}).Err(), "NOSCRIPT") {
			unknown++
		}
	}
	if unknown != 3 {
		t.Errorf("%d of 9 EVALSHA met a node without the script, want 3", unknown)
	}
}
