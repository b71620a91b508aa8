package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/integration/servers"
)

// serverFaults are the faults of a server.
var serverFaults = []breakage{
	{
		name: "SIGSTOP", gets: noAnswers,
		begin: func(t testing.TB, s *scene) { s.server.Signal(t, "SIGSTOP") },
		end: func(t testing.TB, s *scene) {
			s.revive(t, func(t testing.TB) { s.server.Signal(t, "SIGCONT") })
		},
	},
	{
		name: "SIGKILL, restart with an append-only file", gets: noAnswers, durable: true,
		begin: func(t testing.TB, s *scene) { s.server.Kill(t) },
		end:   func(t testing.TB, s *scene) { s.revive(t, s.server.Start) },
	},
	{
		name: "SIGKILL, restart without persistence", gets: noAnswers, forgets: "the restart",
		begin: func(t testing.TB, s *scene) { s.server.Kill(t) },
		end:   func(t testing.TB, s *scene) { s.revive(t, s.server.Start) },
	},
	{name: "SCRIPT FLUSH, again and again", gets: answers, during: doing("SCRIPT", "FLUSH")},
	{name: "CLIENT KILL, again and again",
		gets: anything, during: doing("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")},
	{
		name: "CLIENT PAUSE", gets: noAnswers,
		begin: func(t testing.TB, s *scene) {
			// longer than the scene, which is slower than the server on a busy machine
			s.do(t, "CLIENT", "PAUSE", (breakageLasts + 300*time.Millisecond).Milliseconds())
		},
		end: func(t testing.TB, s *scene) { s.do(t, "PING") }, // answered when the pause is over
	},
	{
		name: "BUSY with another script", gets: noAnswers,
		begin: func(t testing.TB, s *scene) {
			s.do(t, "CONFIG", "SET", "busy-reply-threshold", "1")
			busy := redis.NewClient(&redis.Options{Addr: s.server.Addr, MaxRetries: -1,
				ReadTimeout: time.Minute})
			go func() {
				defer busy.Close()
				busy.Eval(context.Background(), "while true do end", nil)
			}()
			servers.Await(t, func() (bool, error) { return s.isBusy(t), nil })
		},
		end: func(t testing.TB, s *scene) {
			s.do(t, "SCRIPT", "KILL")
			servers.Await(t, func() (bool, error) { return !s.isBusy(t), nil })
			s.healed = time.Now()
			s.do(t, "CONFIG", "SET", "busy-reply-threshold", "5000")
		},
	},
	{
		name: "maxmemory, noeviction", gets: unavailable,
		begin: func(t testing.TB, s *scene) { s.do(t, "CONFIG", "SET", "maxmemory", "1") },
		end:   func(t testing.TB, s *scene) { s.do(t, "CONFIG", "SET", "maxmemory", "0") },
	},
	{
		name: "maxmemory, allkeys-lru", gets: answers | unavailable, forgets: "eviction",
		begin: func(t testing.TB, s *scene) {
			s.do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
			s.do(t, "CONFIG", "SET", "maxmemory", s.usedMemory(t)+1<<20)
		},
		during: repeatedly(func(t testing.TB, s *scene) { // more than there is room for
			for i := range 64 {
				s.do(t, "SET", fmt.Sprintf("%sfill:%d:%d", s.prefix, time.Now().UnixNano(), i),
					strings.Repeat("x", 4<<10), "EX", 10)
			}
		}),
		end: func(t testing.TB, s *scene) {
			s.do(t, "CONFIG", "SET", "maxmemory", "0")
			s.do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
		},
	},
	{
		name: "REPLICAOF: it becomes a replica", gets: unavailable,
		begin: func(t testing.TB, s *scene) { s.do(t, "REPLICAOF", "127.0.0.1", "1") },
		end:   func(t testing.TB, s *scene) { s.do(t, "REPLICAOF", "NO", "ONE") },
	},
	{
		name: "rights withdrawn", gets: unavailable,
		begin: func(t testing.TB, s *scene) {
			s.do(t, "ACL", "SETUSER", faultUser, "-evalsha", "-eval")
		},
		end: func(t testing.TB, s *scene) { s.do(t, "ACL", "SETUSER", faultUser, "+@all") },
	},
	{
		name: "password changed, connections closed", gets: noAnswers,
		begin: func(t testing.TB, s *scene) {
			s.do(t, "ACL", "SETUSER", faultUser, "resetpass", ">swordfish")
			s.do(t, "CLIENT", "KILL", "USER", faultUser)
		},
		end: func(t testing.TB, s *scene) {
			s.do(t, "ACL", "SETUSER", faultUser, "resetpass", ">"+faultPassword)
		},
	},
	{name: "FLUSHALL, again and again", gets: answers, forgets: "FLUSHALL",
		during: doing("FLUSHALL")},
	{name: "SWAPDB", gets: answers, forgets: "SWAPDB",
		begin: func(t testing.TB, s *scene) { s.do(t, "SWAPDB", 0, 1) }},
	{
		name: "maxclients, connections closed", gets: noAnswers,
		begin: func(t testing.TB, s *scene) {
			s.do(t, "CONFIG", "SET", "maxclients", "1")
			s.do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		},
		end: func(t testing.TB, s *scene) { s.do(t, "CONFIG", "SET", "maxclients", "10000") },
	},
}

// doing repeats a command on a server for as long as a fault lasts.
func doing(args ...any) func(testing.TB, *scene) {
	return repeatedly(func(t testing.TB, s *scene) { s.do(t, args...) })
}

func (s *scene) isBusy(t testing.TB) bool {
	return redis.HasErrorPrefix(s.admin.Get(t.Context(), "none").Err(), "BUSY")
}

func (s *scene) usedMemory(t testing.TB) (n int) {
	t.Helper()
	info, err := s.admin.InfoMap(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(info["Memory"]["used_memory"], &n); err != nil {
		t.Fatal(err)
	}
	return n
}
