package redisstore

import (
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// TestProbeRunsWhatDecisionsRun holds that the probe's script tries every command of the script that decides.
func TestProbeRunsWhatDecisionsRun(t *testing.T) {
	var call algorithm.Call
	call.Begin(0)
	d := ratelimit.Demand{Key: "k", Algorithm: algorithm.SlidingLog(ratelimit.PerMinute(1)), N: 1}
	if err := call.Add([]string{"k"}, []ratelimit.Demand{d}); err != nil {
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
		redis7  = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nmaxmemory_policy:noeviction\r\n"
		redis8  = "redis_version:8.0.2\r\nredis_mode:standalone\r\nmaxmemory_policy:noeviction\r\n"
		redis10 = "redis_version:10.0.0\r\nmaxmemory_policy:allkeys-lru\r\n"
		valkey  = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\nmaxmemory_policy:noeviction\r\n"
	)
	for _, tt := range []struct {
		what     string
		infos    []string
		want     Server
		warnings []string // what they hold
		err      string   // what it holds
	}{
		{what: "Redis", infos: []string{redis7}, want: Server{Name: "redis", Version: "7.0.15", EvictionPolicy: "noeviction"}},
		{what: "Valkey", infos: []string{valkey}, want: Server{Name: "valkey", Version: "8.1.1", EvictionPolicy: "noeviction"}},
		{what: "cluster", infos: []string{redis10, redis7, redis8}, want: Server{Name: "redis", Version: "7.0.15", EvictionPolicy: "allkeys-lru"},
			warnings: []string{"allkeys-lru"}},
		{what: "no INFO", want: Server{}},
		{what: "other", infos: []string{"redis_version:7.4.0\r\nserver_name:other\r\n"}, want: Server{Name: "other", Version: "7.4.0"},
			warnings: []string{"not tested"}},
		{what: "old", infos: []string{redis8, "redis_version:6.2.14\r\n"}, err: "redis 6.2.14, and 7.0 is the oldest"},
		{what: "no Redis", infos: []string{"version:1\r\n"}, err: "neither Redis nor Valkey"},
		{what: "Sentinel", infos: []string{"redis_version:7.0.15\r\nredis_mode:sentinel\r\n"}, err: "NewFailoverClient"},
		{what: "Valkey's Sentinel", infos: []string{"redis_version:7.2.4\r\nvalkey_version:8.1.1\r\nserver_mode:sentinel\r\n"}, err: "NewFailoverClient"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			var infos []map[string]string
			for _, text := range tt.infos {
				infos = append(infos, parseInfo(text))
			}
			got, err := describe(infos)
			if tt.err != "" {
				if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Name != tt.want.Name || got.Version != tt.want.Version || got.EvictionPolicy != tt.want.EvictionPolicy ||
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

// TestProbeOfNoRedis probes what is there, but is no Redis: a closed port, a web server, and one that says nothing.
func TestProbeOfNoRedis(t *testing.T) {
	for what, greeting := range map[string]string{
		"closed": "",
		"web":    "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
		"silent": "",
	} {
		t.Run(what, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if what == "closed" {
				l.Close()
			}
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					defer conn.Close()
					io.WriteString(conn, greeting)
				}
			}()
			client := redis.NewClient(&redis.Options{Addr: l.Addr().String()})
			defer client.Close()
			s, err := New(client, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			_, err = s.Probe(ctx)
			if !errors.Is(err, ratelimit.ErrUnavailable) {
				t.Errorf("%v, want ErrUnavailable", err)
			}
			t.Log(err)
			if d := time.Since(start); d > 1200*time.Millisecond {
				t.Errorf("answered after %v", d)
			}
		})
	}
}
