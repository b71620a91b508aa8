package server

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// TestProbeRunsWhatDecisionsRun holds that the probe's script tries every command of the script
// that decides.
func TestProbeRunsWhatDecisionsRun(t *testing.T) {
	var call lua.Run
	call.Begin(0)
	d := driver.Demand{Key: "k",
		Algorithm: algorithm.SlidingLog(driver.PerMinute("minute", 1)), N: 1}
	if err := call.Add([]string{"k"}, []driver.Demand{d}); err != nil {
		t.Fatal(err)
	}
	used := regexp.MustCompile(`call\('([A-Z]+)'`).FindAllStringSubmatch(call.Program().Source, -1)
	if len(used) < 3 {
		t.Fatalf("found only %q", used)
	}
	for _, match := range used {
		if !strings.Contains(probeSource, "{'"+match[1]+"'") {
			t.Errorf("the probe does not try %s", match[1])
		}
	}
}

func TestDescribe(t *testing.T) {
	const (
		redis7 = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n" +
			"maxmemory_policy:noeviction\r\n"
		redis8  = "redis_version:8.0.2\r\nredis_mode:standalone\r\nmaxmemory_policy:noeviction\r\n"
		redis10 = "redis_version:10.0.0\r\nmaxmemory_policy:allkeys-lru\r\n"
		valkey  = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\n" +
			"maxmemory_policy:noeviction\r\n"
	)
	for _, tt := range []struct {
		what     string
		infos    []string
		want     serverstore.Server
		warnings []string // part of each
		err      string   // part of it
	}{
		{what: "Redis", infos: []string{redis7},
			want: serverstore.Server{Name: "redis", Version: "7.0.15",
				EvictionPolicy: "noeviction"}},
		{what: "Valkey", infos: []string{valkey},
			want: serverstore.Server{Name: "valkey", Version: "8.1.1",
				EvictionPolicy: "noeviction"}},
		{what: "cluster", infos: []string{redis10, redis7, redis8},
			want: serverstore.Server{Name: "redis", Version: "7.0.15",
				EvictionPolicy: "allkeys-lru"},
			warnings: []string{"allkeys-lru"}},
		{what: "no INFO", want: serverstore.Server{}},
		{what: "other", infos: []string{"redis_version:7.4.0\r\nserver_name:other\r\n"},
			want:     serverstore.Server{Name: "other", Version: "7.4.0"},
			warnings: []string{"not tested on this type of server, other; run the conformance "}},
		{what: "Dragonfly",
			infos:    []string{"redis_version:7.4.0\r\ndragonfly_version:df-v1.30.0\r\n"},
			want:     serverstore.Server{Name: "dragonfly", Version: "7.4.0"},
			warnings: []string{"not tested on this type of server, dragonfly; run"}},
		{what: "Garnet", infos: []string{"redis_version:7.4.3\r\ngarnet_version:1.0.83\r\n"},
			want:     serverstore.Server{Name: "garnet", Version: "7.4.3"},
			warnings: []string{"not tested on this type of server, garnet; run"}},
		{what: "Kvrocks", infos: []string{"redis_version:7.0.0\r\nkvrocks_version:2.13.0\r\n"},
			want:     serverstore.Server{Name: "kvrocks", Version: "7.0.0"},
			warnings: []string{"not tested on this type of server, kvrocks; run"}},
		{what: "old", infos: []string{redis8, "redis_version:6.2.14\r\n"},
			err: "6.2.14, and 7.0 is the oldest that works; use Redis or Valkey 7.0 or later"},
		{what: "no Redis", infos: []string{"version:1\r\n"}, err: "neither Redis nor Valkey"},
		{what: "Sentinel", infos: []string{"redis_version:7.0.15\r\nredis_mode:sentinel\r\n"},
			err: "use a client for it"},
		{what: "Valkey's Sentinel",
			infos: []string{
				"redis_version:7.2.4\r\nvalkey_version:8.1.1\r\nserver_mode:sentinel\r\n",
			},
			err: "use a client for it"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			var infos []map[string]string
			for _, text := range tt.infos {
				infos = append(infos, parseInfo(text))
			}
			got, err := Words{Sentinel: "a client for it"}.describe(infos)
			if tt.err != "" {
				if !errors.Is(err, errors.ErrUnsupported) ||
					!strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Name != tt.want.Name || got.Version != tt.want.Version ||
				got.EvictionPolicy != tt.want.EvictionPolicy ||
				len(got.Warnings) != len(tt.warnings) {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
			for i, want := range tt.warnings {
				if i < len(got.Warnings) && !strings.Contains(got.Warnings[i], want) {
					t.Errorf("warning %q, want %q", got.Warnings[i], want)
				}
			}
		})
	}
}

// FuzzInfo: whatever the answers to INFO, the servers are refused or are 7.0 or later.
func FuzzInfo(f *testing.F) {
	f.Add("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n"+
		"maxmemory_policy:noeviction\r\n", "redis_version:8.0.2\r\n")
	f.Add("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\n",
		"redis_version:10\r\nserver_name:other")
	f.Add("redis_version:7.0.15\r\nredis_mode:sentinel\r\n", "")
	f.Add("redis_version:-1.\r\n", "redis_version:99999999999999999999\r\n:\n::")
	f.Fuzz(func(t *testing.T, one, other string) {
		infos := []map[string]string{parseInfo(one), parseInfo(other)}
		found, err := Words{Package: "fuzzed"}.describe(infos)
		if err != nil {
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		if major(found.Version) < oldestMajor || found.Name == "" || len(found.Warnings) > 2 {
			t.Fatalf("%+v", found)
		}
	})
}
