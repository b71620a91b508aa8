package main

import (
	"os/exec"
	"sync"
	"testing"
	"time"
)

// startTestServer starts a server for this test. stop may be called more than once.
func startTestServer(t *testing.T) (s *server, stop func()) {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("no redis-server is installed")
	}
	s, err = startServer(t.Context(), source{binary: path})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			s.stop()
		}
	}
	t.Cleanup(stop)
	return s, stop
}

// TestRedisEntriesDecideOrFail: each entry enforces its limit, and returns an error when it cannot
// decide: otherwise the error would be counted as a refusal.
func TestRedisEntriesDecideOrFail(t *testing.T) {
	s, stop := startTestServer(t)
	const limit = 5
	deciders := make(map[string]decider)
	for _, e := range redisEntries {
		d, err := e.open(s.addr, quota{limit, time.Hour})
		if err != nil {
			t.Fatalf("%s: %v", e.Name, err)
		}
		defer d.close()
		deciders[e.Name] = d
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
		if name == emptyScript || name == atOnce {
			want = 2 * limit
		}
		if admitted != want {
			t.Errorf("%s admitted %d of %d, want %d", name, admitted, 2*limit, want)
		}
	}
	stop()
	var wg sync.WaitGroup
	for name, d := range deciders {
		if name == atOnce {
			continue
		}
		wg.Go(func() {
			// another key, because a cached refusal of "user" would be right
			if ok, err := d.allow(t.Context(), "somebody else"); ok || err == nil {
				t.Errorf("%s without a server: got %v, %v; want an error", name, ok, err)
			}
		})
	}
	wg.Wait()
}

// TestLoadOfEntries: a load measures all metrics of every kind of entry.
func TestLoadOfEntries(t *testing.T) {
	s, _ := startTestServer(t)
	w := workload{quota: quota{10, time.Hour}, keys: keyNames(1)}
	metrics := load(&s, false).metrics
	for _, name := range []string{zset, httprateRedis, oursRueidis, atOnce} {
		values, err := s.load(t.Context(), name, &w, 4, 20*time.Millisecond)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := make(map[string]float64)
		for i, m := range metrics {
			got[m.Name] = values[i]
		}
		if got["rate"] <= 0 || got["p50"] <= 0 || got["p999"] < got["p50"] || got["errors"] != 0 {
			t.Errorf("%s: got %v, want plausible figures without errors", name, got)
		}
		if local := name == atOnce; (got["commands"] == 0) != local ||
			(got["reads"] == 0) != local {
			t.Errorf("%s: got %v commands and %v reads a decision, want none: %t", name,
				got["commands"], got["reads"], local)
		}
	}
}

// TestCachedRefusalsSendNothing: a cached refusal sends no command, any other refusal sends one.
func TestCachedRefusalsSendNothing(t *testing.T) {
	s, _ := startTestServer(t)
	const limit, again = 2, 10
	for _, name := range []string{cachingRueidis, cachingValkey, oursRueidis} {
		entry, p, err := s.open(t.Context(), name, quota{limit, time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		refuse := func(calls int) {
			t.Helper()
			for range calls {
				if ok, err := p.allow(t.Context(), p.keys[0]); ok || err != nil {
					t.Fatalf("%s: got %v, %v; want a refusal", name, ok, err)
				}
			}
		}
		for range limit {
			if ok, err := p.allow(t.Context(), p.keys[0]); !ok || err != nil {
				t.Fatalf("%s: got %v, %v; want an admission", name, ok, err)
			}
		}
		want := 0.0
		if name == oursRueidis {
			want = again
		}
		got := -1.0
		for try := 0; got != want && try < 1000; try++ { // refusals are cached in the background
			before, err := s.snapshot(t.Context(), entry.calls)
			if err != nil {
				t.Fatal(err)
			}
			refuse(again)
			after, err := s.snapshot(t.Context(), entry.calls)
			if err != nil {
				t.Fatal(err)
			}
			got = after.since(before).calls
		}
		if got != want {
			t.Errorf("%s: got %v commands for %d refusals, want %v", name, got, again, want)
		}
	}
}
