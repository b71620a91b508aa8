package scripts

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
)

// orders are the orders in which units are given back.
var orders = []struct {
	name string
	of   func(r *rand.Rand, stamps []int64)
}{
	{"in order", func(*rand.Rand, []int64) {}},
	{"opposite", func(_ *rand.Rand, stamps []int64) { slices.Reverse(stamps) }},
	{"random", func(r *rand.Rand, stamps []int64) {
		r.Shuffle(len(stamps), func(i, j int) { stamps[i], stamps[j] = stamps[j], stamps[i] })
	}},
}

// TestGivenBackIsBoundedOnServer takes as often as the limit within a window, or a million times
// with RATELIMIT_FULL set, and gives each unit back, at once or when the limit is used up. Half of
// the limit stays in use, and the size of the log depends only on what it still holds. Without
// RATELIMIT_FULL, a large limit is tried in random order only.
func TestGivenBackIsBoundedOnServer(t *testing.T) {
	eachGuarded(t, func(t *testing.T, g *guarded) {
		for _, tt := range []struct{ limit, bytes int64 }{{100, 8192}, {10_000, 280_000}} {
			half := tt.limit / 2
			takes := 2 * half
			if servers.Full {
				takes = 1_000_000
			}
			for i, order := range orders {
				for _, at := range []int64{1, half} {
					if at == 1 && i > 0 {
						continue // the order makes no difference
					}
					if !servers.Full && tt.limit > 100 && order.name != "random" {
						continue
					}
					t.Run(fmt.Sprintf("%d/%d at a time %s", tt.limit, at, order.name),
						func(t *testing.T) {
							s := sender{g: g, key: fmt.Sprintf("{back}%d %d %s",
								tt.limit, at, order.name),
								log: algorithm.SlidingLog(driver.PerHour("hour", tt.limit)),
								now: time.Now().UnixMicro()}
							r := rand.New(rand.NewPCG(1, uint64(tt.limit)))
							s.takes(t, half)
							var most int64
							s.measure(t)
							for done := int64(0); done < takes; done += half {
								if at == 1 {
									s.takesAtOnce(t, half)
								} else {
									stamps := s.takes(t, half)
									most = max(most, s.length(t))
									order.of(r, stamps)
									s.giveBack(t, stamps)
								}
								most = max(most, s.length(t))
								if done < half || done >= takes-half {
									t.Logf("round %d: %s", done/half, s.measure(t))
								}
							}
							t.Logf("the log took up to %d bytes", most)
							if most > tt.bytes {
								t.Errorf("the log took up to %d bytes, want at most %d", most,
									tt.bytes)
							}
							d := driver.Demand{Key: "k",
								Algorithm: s.log, Op: driver.OpPeek, N: 1}
							if res := s.send(t,
								[]driver.Demand{d})[0]; res.Remaining != tt.limit-half {
								t.Errorf("got %+v after all was given back, want %d remaining", res,
									tt.limit-half)
							}
						})
				}
			}
		}
	})
}

// sender sends demands on one key in pipelines, each with a clock one microsecond later.
type sender struct {
	g   *guarded
	key string
	log algorithm.Log
	now int64

	calls [500]lua.Call
}

func (s *sender) takes(t *testing.T, n int64) (stamps []int64) {
	t.Helper()
	ds := make([]driver.Demand, n)
	for i := range ds {
		ds[i] = driver.Demand{Key: "k", Algorithm: s.log, N: 1}
	}
	for _, res := range s.send(t, ds) {
		stamps = append(stamps, res.At)
	}
	return stamps
}

// takesAtOnce takes n times, and gives each unit back before the next take.
func (s *sender) takesAtOnce(t *testing.T, n int64) {
	t.Helper()
	var ds []driver.Demand
	for i := range n {
		d := driver.Demand{Key: "k", Algorithm: s.log, N: 1}
		ds = append(ds, d)
		d.Op, d.At = driver.OpGiveBack, s.now+2*i+1
		ds = append(ds, d)
	}
	s.send(t, ds)
}

func (s *sender) giveBack(t *testing.T, stamps []int64) {
	t.Helper()
	var ds []driver.Demand
	for _, at := range stamps {
		ds = append(ds, driver.Demand{Key: "k", Algorithm: s.log, Op: driver.OpGiveBack,
			N: 1, At: at})
	}
	s.send(t, ds)
}

func (s *sender) send(t *testing.T, ds []driver.Demand) (results []driver.Result) {
	t.Helper()
	for some := range slices.Chunk(ds, len(s.calls)) {
		replies, pipe := make([]*redis.Cmd, len(some)), newPipeline(s.g.client)
		for i, d := range some {
			s.now++
			c := &s.calls[i]
			c.Begin(s.now)
			if err := c.Add([]string{s.key}, []driver.Demand{d}); err != nil {
				t.Fatal(err)
			}
			replies[i] = pipe.run(t, c)
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range some {
			var out [1]driver.Result
			err := s.calls[i].Results(replies[i].Val().(string), 0, out[:])
			if err != nil || !out[0].Allowed {
				t.Fatalf("%v: got %+v, %v; want an admission", some[i].Op, out[0], err)
			}
			results = append(results, out[0])
		}
	}
	return results
}

func (s *sender) length(t *testing.T) int64 {
	t.Helper()
	n, err := s.g.control.StrLen(t.Context(), s.key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// measure reports the mean and the longest time of a call since the last measure.
func (s *sender) measure(t *testing.T) string {
	t.Helper()
	mean := "nothing"
	for field := range strings.SplitSeq(s.g.info(t, "commandstats")["cmdstat_evalsha"], ",") {
		if value, ok := strings.CutPrefix(field, "usec_per_call="); ok {
			mean = value + " µs"
		}
	}
	slowest, slow := time.Duration(0), 0
	logs, err := s.g.control.SlowLogGet(t.Context(), -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range logs {
		slowest = max(slowest, l.Duration)
		if l.Duration > time.Millisecond {
			slow++
		}
	}
	for _, args := range [][]any{{"CONFIG", "RESETSTAT"}, {"SLOWLOG", "RESET"},
		{"CONFIG", "SET", "slowlog-log-slower-than", "100"},
		{"CONFIG", "SET", "slowlog-max-len", "20000"}} {
		if err := s.g.control.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("a call takes %s, the slowest %v, %d more than 1ms", mean, slowest, slow)
}

// TestLuaGivesBackAsGo: in histories that give back many units, in any order, the Lua step and the
// Go step write the same bytes.
func TestLuaGivesBackAsGo(t *testing.T) {
	t.Parallel()
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		swept := 0
		for _, limit := range []int64{3, 40, 300, 2000} {
			for i, order := range orders {
				t.Run(fmt.Sprintf("%d %s", limit, order.name), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(i), uint64(limit)))
					w := newTwin(t, tgt.Client(t), fmt.Sprintf("back:%d", r.Uint64()))
					log := algorithm.SlidingLog(driver.PerMinute("minute", limit))
					if i == 1 {
						log = log.WithResolution(7 * time.Microsecond)
					}
					swept += playGivenBack(t, w, log, r, order.of)
				})
			}
		}
		if swept < 20 {
			t.Errorf("%d states in a sweep, want 20 or more: this test proves nothing", swept)
		}
	})
}

func playGivenBack(
	t *testing.T, w *twin, log algorithm.Log, r *rand.Rand, order func(*rand.Rand, []int64),
) (swept int) {
	t.Helper()
	const second = int64(time.Second / time.Microsecond)
	now, limit := time.Now().UnixMicro(), log.Limit().Max
	for round := range 3 {
		var stamps []int64
		for range min(limit, 60+r.Int64N(1400)) {
			now += 1 + r.Int64N(10_000)
			if r.IntN(300) == 0 {
				now += r.Int64N(60*second) - 15*second
			}
			res := w.step(t, now, driver.Demand{Key: "k", Algorithm: log, N: 1})
			if res.Allowed && r.IntN(3) > 0 {
				stamps = append(stamps, res.At)
			} else if res.Allowed {
				w.step(t, now, driver.Demand{Key: "k", Algorithm: log, Op: driver.OpGiveBack,
					N: 1, At: res.At})
			}
		}
		order(r, stamps)
		for i, at := range stamps {
			if r.IntN(10) < 7 {
				w.step(t, now, driver.Demand{Key: "k", Algorithm: log, Op: driver.OpGiveBack,
					N: 1, At: at})
			}
			if n := len(w.state); n > 5000 && binary.BigEndian.Uint32(w.state[n-104:]) > 0 {
				swept++ // the state contains the position of a gap
			}
			if i%16 == 0 {
				w.compareBytes(t)
			}
		}
		w.step(t, now, driver.Demand{Key: "k", Algorithm: log, Op: driver.OpPeek,
			N: 1 + r.Int64N(limit)})
		w.compareBytes(t)
		if round%2 == 1 {
			w.swap(t)
		}
	}
	return swept
}

// compareBytes compares what both sides have written, except the time to live, which a server
// renews less often, and the copies.
func (w *twin) compareBytes(t *testing.T) {
	t.Helper()
	w.compare(t)
	got, err := w.client.Get(t.Context(), w.key).Bytes()
	if err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	want := bytes.Clone(w.state)
	for _, state := range [][]byte{got, want} {
		if len(state) < 44 {
			continue
		}
		expiry := len(state) - 4
		if len(state) >= 160 {
			expiry -= 48
			state[expiry-15] &^= 7 // number of copies used
		}
		clear(state[expiry:])
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("Lua wrote %s\nGo wrote  %s", brief(got), brief(want))
	}
}

// TestLuaCopiesAfterSweep: a sweep that removes empty records among the oldest invalidates their
// copies.
func TestLuaCopiesAfterSweep(t *testing.T) {
	const minute = int64(time.Minute / time.Microsecond)
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		w := newTwin(t, tgt.Client(t), "copies")
		d := driver.Demand{Key: "k",
			Algorithm: algorithm.SlidingLog(driver.PerMinute("minute", 2000)), N: 1}
		now, begin := time.Now().UnixMicro(), time.Now().UnixMicro()
		for i := range int64(1000) {
			now = begin + i*10_000
			w.step(t, now, d)
		}
		back := d
		back.Op = driver.OpGiveBack
		for i := range int64(350) {
			if back.At = begin + i*10_000; i > 2 {
				back.At = begin + (100+i)*10_000
			}
			w.step(t, now, back)
			if i == 2 {
				now++
				w.step(t, now, d) // makes copies
			}
		}
		for i := range int64(10) {
			now = begin + i*10_000 + minute
			w.step(t, now, d)
			w.step(t, now, driver.Demand{Key: "k",
				Algorithm: d.Algorithm, Op: driver.OpPeek, N: 2000})
		}
		w.compare(t)
	})
}
