package scripts

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/lua"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// The guards bound the cost of a decision in commands, bytes and allocations, which do not depend
// on the machine or its load. A change that makes a decision more expensive fails here unless it
// changes a table.

// eachGuarded runs f on a server of each image for this test alone, so that all counts are its own.
func eachGuarded(t *testing.T, f func(t *testing.T, g *guarded)) {
	t.Helper()
	servers.EachImage(t, func(t *testing.T, image string) {
		s := servers.Start(t, image, "--repl-diskless-sync-delay", "0")
		t.Parallel()
		opts := redis.Options{Addr: s.Addr, ReadTimeout: time.Minute}
		g := &guarded{client: redis.NewClient(&opts), control: redis.NewClient(&opts)}
		t.Cleanup(func() { g.client.Close(); g.control.Close() })
		f(t, g)
	})
}

type guarded struct {
	client  *redis.Client // of the store
	control *redis.Client // of the test
}

func (g *guarded) limiter(
	t *testing.T, limit driver.Limit, now func() int64,
) *ratelimit.Limiter {
	t.Helper()
	return g.limiterOf(t, algorithm.SlidingLog(limit), now)
}

func (g *guarded) limiterOf(
	t *testing.T, a driver.Algorithm, now func() int64,
) *ratelimit.Limiter {
	t.Helper()
	store, err := redisstore.New(g.client, &serverstore.Options{Timeout: clients.Patient, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	l, err := ratelimit.New(store, a)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// info returns the fields of a section of INFO.
func (g *guarded) info(t *testing.T, section string) map[string]string {
	t.Helper()
	text, err := g.control.Info(t.Context(), section).Result()
	if err != nil {
		t.Fatal(err)
	}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// calls returns how often the server ran each command since the last call, including those of
// scripts, such as "evalsha 1, getrange 1, time 1". It omits commands of the connection and of the
// test.
func (g *guarded) calls(t *testing.T) string {
	t.Helper()
	var all []string
	for name, value := range g.info(t, "commandstats") {
		command := strings.TrimPrefix(name, "cmdstat_")
		if name == command ||
			slices.Contains([]string{"info", "hello", "ping", "config|resetstat", "client|setinfo",
				"client|maint_notifications"}, command) {
			continue
		}
		count, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		all = append(all, command+" "+count)
	}
	if err := g.control.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// replicate makes the server count what it would send to a replica: after the first request of a
// replica it keeps a backlog.
func (g *guarded) replicate(t *testing.T) {
	t.Helper()
	conn, err := net.Dial("tcp", g.client.Options().Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(servers.FaultTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "PSYNC ? -1\r\n"); err != nil {
		t.Fatal(err)
	}
	for r := bufio.NewReader(conn); ; {
		line, err := r.ReadString('\n')
		if err != nil || strings.HasPrefix(line, "+FULLRESYNC") {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		if line != "\n" { // a keep-alive
			t.Fatalf("PSYNC: %q", line)
		}
	}
}

// sent returns the bytes sent so far to replicas, which the append-only file gets as well.
func (g *guarded) sent(t *testing.T) int64 {
	t.Helper()
	n, err := strconv.ParseInt(g.info(t, "replication")["master_repl_offset"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// guardCalls are the commands of one decision: the first of a key, the one that fills the log, and
// on the full log the refusal of one unit and of as many units as the limit. A command costs about
// 1 µs.
var guardCalls = []struct {
	limit                           int64
	first, admitted, refused, whole string
}{
	{
		10,
		"evalsha 1, getrange 1, set 1, time 1", // SET also sets the time to live
		"evalsha 1, getrange 1, set 1, time 1", // a small log is written whole
		"evalsha 1, getrange 1, time 1",
		"evalsha 1, getrange 1, time 1",
	},
	{
		100,
		"evalsha 1, getrange 1, set 1, time 1",
		"evalsha 1, getrange 1, setrange 1, time 1",
		"evalsha 1, getrange 1, time 1",
		"evalsha 1, getrange 3, time 1", // up to the newest record, the last that must leave
	},
	{
		10_000,
		"evalsha 1, getrange 1, set 1, time 1",
		"evalsha 1, getrange 1, setrange 2, time 1", // the record and the trailer
		"evalsha 1, getrange 1, time 1",
		"evalsha 1, getrange 4, time 1", // through the index to the newest record
	},
}

// The commands of a decision with an algorithm that has small states: an admission and a refusal.
const (
	guardSmallAdmitted = "evalsha 1, getrange 1, set 1, time 1"
	guardSmallRefused  = "evalsha 1, getrange 1, time 1"
)

// TestGuardCalls counts the commands of a decision.
func TestGuardCalls(t *testing.T) {
	eachGuarded(t, func(t *testing.T, g *guarded) {
		ctx := t.Context()
		for _, want := range guardCalls {
			l := g.limiter(t, driver.PerDay("day", want.limit), nil)
			key := fmt.Sprint(want.limit)
			decide := func(n int64, allowed bool) string {
				t.Helper()
				g.calls(t)
				res, err := l.AllowN(ctx, key, n)
				if err != nil || res.Allowed != allowed {
					t.Fatalf("%d of %d units: got %+v, %v; want Allowed %t",
						n, want.limit, res, err, allowed)
				}
				return g.calls(t)
			}
			if _, err := l.Allow(ctx, "script"+key); err != nil { // loads the script
				t.Fatal(err)
			}
			got := want
			got.first = decide(1, true)
			for range want.limit - 2 {
				if _, err := l.Allow(ctx, key); err != nil {
					t.Fatal(err)
				}
			}
			got.admitted = decide(1, true)
			got.refused = decide(1, false)
			got.whole = decide(want.limit, false)
			if got != want {
				t.Errorf("limit %d:\n got %+v\nwant %+v", want.limit, got, want)
			}
		}
	})
}

// TestGuardCallsSmall counts the commands of a decision with the algorithms other than the log.
func TestGuardCallsSmall(t *testing.T) {
	eachGuarded(t, func(t *testing.T, g *guarded) {
		limit := driver.PerDay("day", 100)
		for _, a := range algorithms.All()[1:] {
			l := g.limiterOf(t, a.New(limit), nil)
			// This loads the script.
			if _, err := l.Allow(t.Context(), "script"); err != nil {
				t.Fatal(err)
			}
			for i := range limit.Max + 1 {
				g.calls(t)
				res, err := l.Allow(t.Context(), "key")
				if err != nil || res.Allowed != (i < limit.Max) {
					t.Fatalf("%s, unit %d: got %+v, %v; want Allowed %t", a.Name, i, res, err,
						i < limit.Max)
				}
				want := guardSmallAdmitted
				if !res.Allowed {
					want = guardSmallRefused
				}
				if got := g.calls(t); got != want {
					t.Fatalf("%s, unit %d: got %s, want %s", a.Name, i, got, want)
				}
			}
		}
	})
}

// guardSame are the commands for equal takes of one key in one call, whether 2 or 1,000: the state
// is read at most three times.
var guardSame = []struct {
	algorithm             string
	limit                 int64
	admitted, in, refused string // all fit; some of them; none
}{
	{
		"log", 10,
		"evalsha 1, getrange 2, set 2, time 1",
		"evalsha 1, getrange 3, set 2, time 1",
		"evalsha 1, getrange 1, time 1",
	},
	{
		"log", 100,
		"evalsha 1, getrange 2, setrange 2, time 1",
		"evalsha 1, getrange 3, setrange 2, time 1",
		"evalsha 1, getrange 1, time 1",
	},
	{
		"log", 10_000,
		"evalsha 1, getrange 2, setrange 4, time 1",
		"evalsha 1, getrange 3, setrange 4, time 1",
		"evalsha 1, getrange 1, time 1",
	},
	{
		"gcra", 1000,
		"evalsha 1, getrange 2, set 2, time 1",
		"evalsha 1, getrange 3, set 2, time 1",
		"evalsha 1, getrange 1, time 1",
	},
	{
		"fixed", 1000,
		"evalsha 1, getrange 2, set 2, time 1",
		"evalsha 1, getrange 3, set 2, time 1",
		"evalsha 1, getrange 1, time 1",
	},
	{
		"counter", 1000,
		"evalsha 1, getrange 2, set 2, time 1",
		"evalsha 1, getrange 3, set 2, time 1",
		"evalsha 1, getrange 1, time 1",
	},
}

// TestGuardSame counts the commands of equal takes.
func TestGuardSame(t *testing.T) {
	eachGuarded(t, func(t *testing.T, g *guarded) {
		var call lua.Run
		for _, want := range guardSame {
			named, err := algorithms.ByName(want.algorithm)
			if err != nil {
				t.Fatal(err)
			}
			d := driver.Demand{Key: "k", Algorithm: named.New(driver.PerDay("day", want.limit)),
				N: 1}
			call.Begin(0)
			if err := call.AddSame("script"+want.algorithm, d, 2); err != nil {
				t.Fatal(err)
			}
			runCall(t, g.client, &call) // loads the script
			key := fmt.Sprint(want.algorithm, want.limit)
			take := func(times, allowed int) string {
				t.Helper()
				g.calls(t)
				call.Begin(0)
				if err := call.AddSame(key, d, times); err != nil {
					t.Fatal(err)
				}
				out := make([]driver.Result, times)
				if err := call.Results(runCall(t, g.client, &call), 0, out); err != nil {
					t.Fatal(err)
				}
				for _, res := range out {
					if res.Allowed {
						allowed--
					}
				}
				if allowed != 0 {
					t.Errorf("%s, limit %d: of %d takes %d too many were admitted",
						want.algorithm, want.limit, times, -allowed)
				}
				return g.calls(t)
			}
			for range want.limit*7/10 - 3 {
				take(1, 1)
			}
			got := want
			got.admitted = take(3, 3)
			left := int(want.limit - want.limit*7/10)
			got.in = take(left+1000, left)
			got.refused = take(1000, 0)
			if got != want {
				t.Errorf("%s, limit %d:\n got %+v\nwant %+v", want.algorithm, want.limit, got, want)
			}
		}
	})
}

// guardSizes bound the size of a key whose limit is always used up, including compactions.
var guardSizes = []struct {
	limit   int64
	length  int64 // of the state, in bytes
	memory  int64 // MEMORY USAGE, in bytes
	replica int64 // bytes to a replica for each decision
}{
	{5, 92, 168, 166},
	{100, 1_508, 3_144, 234},
	{1000, 12_588, 28_744, 240},
	{10_000, 122_568, 262_216, 246},
}

// TestGuardSizes measures full logs after every decision, until they have been compacted.
func TestGuardSizes(t *testing.T) {
	eachGuarded(t, func(t *testing.T, g *guarded) {
		ctx := t.Context()
		g.replicate(t)
		for _, want := range guardSizes {
			limit := driver.PerMinute("user", want.limit)
			var clock atomic.Int64
			clock.Store(time.Now().UnixMicro())
			l := g.limiter(t, limit, clock.Load)
			if err := g.control.FlushAll(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			take := func() {
				t.Helper()
				clock.Add(limit.Window.Microseconds() / limit.Max)
				if res, err := l.Allow(ctx, "user:1000000"); err != nil || !res.Allowed {
					t.Fatalf("limit %d: got %+v, %v; want an admission", want.limit, res, err)
				}
			}
			for range limit.Max {
				take()
			}
			key := g.control.RandomKey(ctx).Val()
			got, before, sent := want, int64(0), g.sent(t)
			got.length, got.memory = 0, 0
			compacted, decisions := 0, min(limit.Max, 5_000)
			for range decisions {
				take()
				pipe := g.control.Pipeline()
				strlen, memory := pipe.StrLen(ctx, key), pipe.MemoryUsage(ctx, key)
				if _, err := pipe.Exec(ctx); err != nil {
					t.Fatal(err)
				}
				length := strlen.Val()
				if length <= before { // the log was compacted
					compacted++
					if per := float64(length) / float64(limit.Max); limit.Max >= 100 && per > 16 {
						t.Errorf("limit %d: %.1f bytes a record just after a compaction, want at "+
							"most 16", limit.Max, per)
					}
				}
				before, got.length, got.memory = length, max(got.length, length),
					max(got.memory, memory.Val())
			}
			got.replica = (g.sent(t) - sent) / decisions
			if limit.Max >= 100 && compacted == 0 {
				t.Errorf("limit %d: the log was never compacted", limit.Max)
			}
			if got.length > want.length || got.memory > want.memory || got.replica > want.replica {
				t.Errorf("limit %d: got %+v, want at most %+v", want.limit, got, want)
			}
		}
	})
}

// TestGuardReads bounds what the less common demands read of a log of 10,000 records: at most 16
// ranges and 4 KiB, and 512 bytes more for a demand of many units when most of the log has left the
// window.
func TestGuardReads(t *testing.T) {
	const records, ranges, bytes = 10_000, 16, 4096
	eachGuarded(t, func(t *testing.T, g *guarded) {
		limit := driver.PerMinute("minute", records)
		var clock atomic.Int64
		clock.Store(time.Now().UnixMicro())
		l := g.limiter(t, limit, clock.Load)
		step := limit.Window.Microseconds() / limit.Max
		var ats []int64
		for range records * 3 / 2 { // until the ring has wrapped around
			clock.Add(step)
			res, err := l.Allow(t.Context(), "k")
			if err != nil || !res.Allowed {
				t.Fatalf("got %+v, %v; want an admission", res, err)
			}
			ats = append(ats, clock.Load())
		}
		read := g.reads(t)
		demand := func(what string, later time.Duration, atMost int, d driver.Demand,
			allowed bool) {
			t.Helper()
			clock.Add(later.Microseconds())
			defer clock.Add(-later.Microseconds())
			d.Key, d.Algorithm = "k", algorithm.SlidingLog(limit)
			store, err := redisstore.New(g.client,
				&serverstore.Options{Timeout: clients.Patient, Now: clock.Load})
			if err != nil {
				t.Fatal(err)
			}
			read()
			res, err := store.Take(t.Context(), d)
			if err != nil || res.Allowed != allowed {
				t.Fatalf("%s: got %+v, %v; want Allowed %t", what, res, err, allowed)
			}
			if n, size := read(); n > ranges || size > atMost {
				t.Errorf("%s: read %d ranges with %d bytes, want at most %d with %d",
					what, n, size, ranges, atMost)
			} else {
				t.Logf("%s: read %d ranges with %d bytes", what, n, size)
			}
		}
		oldest := len(ats) - records
		demand("half of the units", 0, bytes,
			driver.Demand{Op: driver.OpPeek, N: records / 2}, false)
		demand("all units", 0, bytes, driver.Demand{Op: driver.OpPeek, N: records}, false)
		demand("when most have left", 55*time.Second, bytes,
			driver.Demand{Op: driver.OpPeek, N: 1}, true)
		demand("all units when most have left",
			55*time.Second, bytes+512, driver.Demand{Op: driver.OpPeek, N: records}, false)
		demand("force at the oldest", 0, bytes,
			driver.Demand{Op: driver.OpForce, N: 1, At: ats[oldest+1]}, true)
		demand("force in the middle", 0, bytes,
			driver.Demand{Op: driver.OpForce, N: 1, At: ats[oldest+records/2]}, true)
		demand("force at the newest", 0, bytes,
			driver.Demand{Op: driver.OpForce, N: 1, At: ats[len(ats)-1]}, true)
		demand("take when most have left",
			55*time.Second, bytes, driver.Demand{Op: driver.OpTake, N: 5}, true)
	})
}

// reads returns a function that returns the number of ranges that scripts have read since its last
// call, and the bytes in them.
func (g *guarded) reads(t *testing.T) func() (ranges, bytes int) {
	t.Helper()
	conn, err := net.Dial("tcp", g.client.Options().Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	await := func() {
		if err := conn.SetDeadline(time.Now().Add(servers.FaultTimeout)); err != nil {
			t.Fatal(err)
		}
	}
	await()
	if _, err := io.WriteString(conn, "MONITOR\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	if line, err := r.ReadString('\n'); err != nil || line != "+OK\r\n" {
		t.Fatalf("MONITOR: got %q, %v; want OK", line, err)
	}
	return func() (ranges, bytes int) {
		t.Helper()
		end := fmt.Sprintf("end of %d", time.Now().UnixNano())
		if err := g.control.Echo(t.Context(), end).Err(); err != nil {
			t.Fatal(err)
		}
		await()
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(line, end) {
				return ranges, bytes
			}
			fields := strings.Split(strings.TrimSpace(line), `"`)
			if !strings.Contains(fields[0], "lua") || len(fields) < 8 ||
				!strings.EqualFold(fields[1], "getrange") {
				continue
			}
			from, _ := strconv.Atoi(fields[5])
			to, _ := strconv.Atoi(fields[7])
			if from >= 0 && to < 0 { // reads the last byte
				to = from
			}
			ranges, bytes = ranges+1, bytes+to-from+1
		}
	}
}
