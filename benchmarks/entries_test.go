package main

import (
	"os/exec"
	"sync"
	"testing"
	"time"
)

func startTestServer(t *testing.T) *server {
	t.Helper()
	if _, err := exec.LookPath(*serverFlag); err != nil {
		if exec.Command("docker", "image", "inspect", *serverFlag).Run() != nil {
			t.Skipf("%s is neither a program nor an image that docker has", *serverFlag)
		}
	}
	s, err := startServer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

// TestRedisEntriesDecideOrFail: each entry enforces its limit, and returns an error when it cannot
// decide: otherwise the error would be counted as a refusal.
func TestRedisEntriesDecideOrFail(t *testing.T) {
	s := startTestServer(t)
	const limit = 5
	deciders := make(map[string]decider)
	for _, e := range redisEntries {
		d, err := e.open(s.addr, quota{limit, time.Hour})
		if err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		defer d.close()
		deciders[e.name] = d
	}
	for name, d := range deciders {
		if err := s.control.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		admitted := 0
		for range 2 * limit {
			ok, err := d.allow(t.Context(), "user")
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if ok {
				admitted++
			}
		}
		want := limit
		if name == emptyScript {
			want = 2 * limit
		}
		if admitted != want {
			t.Errorf("%s admitted %d of %d, want %d", name, admitted, 2*limit, want)
		}
	}
	s.stop()
	var wg sync.WaitGroup
	for name, d := range deciders {
		wg.Go(func() {
			// another key, because a cached refusal of "user" would be right
			if ok, err := d.allow(t.Context(), "somebody else"); ok || err == nil {
				t.Errorf("%s without a server: got %v, %v; want an error", name, ok, err)
			}
		})
	}
	wg.Wait()
}

// TestCachedRefusalsSendNothing: a cached refusal sends no command, any other refusal sends one.
func TestCachedRefusalsSendNothing(t *testing.T) {
	s := startTestServer(t)
	const limit, again = 2, 10
	for _, e := range redisEntriesOf(cachingRueidis, cachingValkey, oursRueidis) {
		d, key := s.open(t, e, quota{limit, time.Hour}), keyName(0)
		for range limit {
			if ok, err := d.allow(t.Context(), key); !ok || err != nil {
				t.Fatalf("%s: got %v, %v; want an admission", e.name, ok, err)
			}
		}
		want := 0.0
		if e.name == oursRueidis {
			want = again
		}
		got := -1.0
		for try := 0; got != want && try < 1000; try++ { // refusals are cached in the background
			before := s.snapshot(t, e.calls)
			for range again {
				if ok, err := d.allow(t.Context(), key); ok || err != nil {
					t.Fatalf("%s: got %v, %v; want a refusal", e.name, ok, err)
				}
			}
			got = s.snapshot(t, e.calls).calls - before.calls
		}
		if got != want {
			t.Errorf("%s: got %v commands for %d refusals, want %v", e.name, got, again, want)
		}
	}
}
