package scripts

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestSameTakes: equal takes in one call, which the server decides in few steps, get the results of
// the Go step applied one by one.
func TestSameTakes(t *testing.T) {
	t.Parallel()
	few := func(r *rand.Rand, window int64) int64 {
		return max(0, r.Int64N(window/1000)-window/8000)
	}
	for name, game := range map[string]sameGame{
		"log": {algorithm: func(r *rand.Rand) driver.Algorithm { return randomLog(r) },
			tick: randomTick},
		"large log": {records: 400, tick: few, algorithm: func(r *rand.Rand) driver.Algorithm {
			limit := driver.Limit{Name: "twin", Max: []int64{700, 5000}[r.IntN(2)],
				Window: 10 * time.Minute}
			return algorithm.SlidingLog(limit).
				WithResolution([]time.Duration{0, 0, 0, 7 * time.Microsecond}[r.IntN(4)])
		}},
		"unsummed": {most: 20,
			algorithm: func(r *rand.Rand) driver.Algorithm { return unsummed{randomLog(r)} },
			tick:      randomTick},
		"quota": {tick: randomTick, algorithm: func(r *rand.Rand) driver.Algorithm {
			return NewQuota(driver.Limit{Name: "twin",
				Max: 1 + r.Int64N(60), Window: time.Duration(1+r.IntN(2)) * time.Hour})
		}},
		"bucket": {tick: randomTick, algorithm: func(r *rand.Rand) driver.Algorithm {
			limit := sameLimit(r)
			return randomlyAhead(r, algorithm.GCRA(limit).WithDebt(randomDebt(r, limit)))
		}},
		"fixed": {tick: randomTick, algorithm: func(r *rand.Rand) driver.Algorithm {
			return algorithm.FixedWindow(sameLimit(r))
		}},
		"month": {tick: randomTick, algorithm: func(r *rand.Rand) driver.Algorithm {
			return algorithm.Monthly("twin", sameLimit(r).Max)
		}},
		"counter": {tick: randomTick, algorithm: func(r *rand.Rand) driver.Algorithm {
			return algorithm.SlidingWindowCounter(sameLimit(r))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
				// each server gets its own histories
				first := 2 * uint64(slices.Index(servers.Images(), tgt.Image)+1)
				for seed := range uint64(2) {
					game.play(t, tgt.Client(t), rand.New(rand.NewPCG(first+seed, 6)))
				}
			})
		})
	}
}

// sameLimit returns a limit of few or very many units, whose Window is none of their multiples.
func sameLimit(r *rand.Rand) driver.Limit {
	return driver.Limit{Name: "twin", Max: []int64{7, 100, 1_000_003, driver.MaxUnits}[r.IntN(4)],
		Window: []time.Duration{time.Minute, 7 * time.Hour, driver.MaxWindow}[r.IntN(3)] -
			time.Duration(r.IntN(3))*time.Microsecond}
}

// sameGame describes a random history with equal takes.
type sameGame struct {
	most      int // equal takes; 0 means 1000
	records   int // in each log at first
	algorithm func(*rand.Rand) driver.Algorithm
	tick      func(r *rand.Rand, window int64) int64
}

func (game sameGame) play(t *testing.T, client redis.UniversalClient, r *rand.Rand) {
	t.Helper()
	twins := make([]*twin, 3)
	tag := fmt.Sprintf("{same:%d:%d}", r.Uint64(), time.Now().UnixNano())
	for i := range twins {
		twins[i] = newTwin(t, client, fmt.Sprint(tag, i))
	}
	now := time.Now().UnixMicro()
	a := game.algorithm(r)
	for range game.records {
		now += game.tick(r, a.Limit().Window.Microseconds())
		for _, w := range twins {
			w.state, _, _ = driver.Demand{Key: "k", Algorithm: a, N: 1}.Step(w.state, now)
		}
	}
	for _, w := range twins {
		if err := client.Set(t.Context(), w.key, w.state, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var stamps []int64
	var call lua.Run
	pipe := newTransaction(client)
	for range 500 {
		if r.IntN(8) == 0 {
			a = game.algorithm(r)
		}
		now = max(1, now+game.tick(r, a.Limit().Window.Microseconds()))
		call.Begin(now)
		var said []string
		var want [][]driver.Result
		for range 1 + r.IntN(4) {
			w, d, times := twins[r.IntN(len(twins))], randomDemand(r, a, stamps), 1+r.IntN(3)
			if d.Op == driver.OpTake {
				times = min([]int{1, 2, 3, 4 + r.IntN(60), 1000}[r.IntN(5)],
					cmp.Or(game.most, 1000))
				if r.IntN(20) == 0 {
					d.N = 1 + r.Int64N(a.Limit().Max)
				}
			}
			if err := call.AddSame(w.key, d, times); err != nil {
				t.Fatal(err)
			}
			results := make([]driver.Result, times)
			for i := range results {
				next, keep, res := d.Step(w.state, now)
				if keep > 0 {
					w.state = next
				}
				results[i] = res
			}
			want = append(want, results)
			said = append(said, fmt.Sprintf("%d times %v of %d on %s", times, d.Op, d.N, w.key))
			stamps = append(stamps[max(0, len(stamps)-20):], newest(now, results[0]))
		}
		run := pipe.run(t, &call)
		for _, w := range twins {
			// The server must not drop a state that is needed again when the clock steps back.
			pipe.Persist(t.Context(), w.key)
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		reply := run.Val().(string)
		for g := range want {
			got := make([]driver.Result, len(want[g]))
			if err := call.Results(reply, g, got); err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if got[i] != want[g][i] {
					t.Fatalf("%s at %d under %v, take %d: got %+v in Lua, want %+v as in Go",
						said[g], now, a.Limit(), i, got[i], want[g][i])
				}
			}
		}
		if w := twins[r.IntN(len(twins))]; r.IntN(10) == 0 {
			w.swap(t)
		}
	}
}

// TestSameTakesAfterAChange: the first of equal takes can change the instant at which the next ones
// are decided, when the clock has stepped back and the resolution is coarser.
func TestSameTakesAfterAChange(t *testing.T) {
	const minute = int64(time.Minute / time.Microsecond)
	base := time.Now().Truncate(24 * time.Hour).UnixMicro()
	log := func(window, resolution time.Duration) algorithm.Log {
		return algorithm.SlidingLog(driver.Limit{Name: "twin", Max: 9, Window: window}).
			WithResolution(resolution)
	}
	for name, c := range map[string]struct {
		before []int64 // stamps of takes under two minutes
		now    int64
		log    algorithm.Log
		times  int
	}{
		"an older record is back": {[]int64{base - minute - 3, base}, base - 10,
			log(time.Minute, 8*time.Microsecond), 3},
		"an older record is back, and full": {[]int64{base - minute - 3, base}, base - 10,
			log(time.Minute, 8*time.Microsecond), 6},
		"an older record is back, coarsest": {[]int64{base - minute - 3, base}, base - 10,
			log(time.Minute, time.Minute), 6},
	} {
		t.Run(name, func(t *testing.T) {
			servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
				w := newTwin(t, tgt.Client(t), "change")
				for _, now := range c.before {
					w.step(t, now, driver.Demand{Key: "k",
						Algorithm: log(2*time.Minute, 0), N: 1})
				}
				d := driver.Demand{Key: "k", Algorithm: c.log, N: 2}
				w.compare(t)
				var call lua.Run
				call.Begin(c.now)
				if err := call.AddSame(w.key, d, c.times); err != nil {
					t.Fatal(err)
				}
				got, want := make([]driver.Result, c.times), make([]driver.Result, c.times)
				if err := call.Results(runCall(t, w.client, &call), 0, got); err != nil {
					t.Fatal(err)
				}
				for i := range want {
					next, keep, res := d.Step(w.state, c.now)
					if keep > 0 {
						w.state = next
					}
					want[i] = res
				}
				if !slices.Equal(got, want) {
					t.Errorf("got %+v, want %+v", got, want)
				}
				if want[1].ResetAfter == want[0].ResetAfter &&
					want[1].Remaining == want[0].Remaining-d.N {
					t.Errorf("the first take changed nothing: %+v: this test proves nothing",
						want)
				}
				w.step(t, c.now, driver.Demand{Key: "k", Algorithm: c.log, Op: driver.OpPeek,
					N: 9})
				w.compare(t)
			})
		})
	}
}

// TestSameTakesUnlikeTheirSum: equal takes are decided one by one if the step reports that their
// sum differs from single takes. If only its ResetAfter is another, each take gets its own.
func TestSameTakesUnlikeTheirSum(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{
		"ResetAfter": `
local function step(key, tail, now, op, n, at, args, pos)
  local used = #tail
  if n > 12 - used then return 0, 12 - used, 7, used, now end
  used = used + n
  return 1, 12 - used, 0, used, now, 60000000, string.rep('x', used)
end`,
		"rounded ResetAfter": `
local function step(key, tail, now, op, n, at, args, pos)
  local used = #tail
  if n > 12 - used then return 0, 12 - used, 7, math.ceil(used * 5 / 4), now end
  used = used + n
  return 1, 12 - used, 0, math.ceil(used * 5 / 4), now, 60000000, string.rep('x', used)
end`,
		"Remaining": `
local function step(key, tail, now, op, n, at, args, pos)
  local used = #tail
  if n >= 12 - used then return 0, 12 - used, 7, 9, now end
  used = used + n + 1
  return 1, 12 - used, 0, 9, now, 60000000, string.rep('x', used)
end`,
		"time": `
local function step(key, tail, now, op, n, at, args, pos)
  local used, takes = 0, 0
  if tail ~= '' then used, takes = struct.unpack('>I1I1', tail) end
  if n > 12 - used then return 0, 12 - used, 7, takes, now + takes end
  used, takes = used + n, takes + 1
  return 1, 12 - used, 0, takes, now + takes, 60000000, struct.pack('>I1I1', used, takes)
end`,
	} {
		t.Run(name, func(t *testing.T) {
			servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
				d := driver.Demand{Key: "k", N: 2, Algorithm: unlike{
					algorithm.SlidingLog(driver.PerMinute("minute", 12)), name, source}}
				const times = 8
				run := func(what string, add func(*lua.Run, string) error) (
					out []driver.Result, state string,
				) {
					t.Helper()
					key := servers.FreshKey(t) + what
					var call lua.Run
					call.Begin(1_000_000)
					if err := add(&call, key); err != nil {
						t.Fatal(err)
					}
					reply := runCall(t, tgt.Client(t), &call)
					for group := range call.Args() {
						one := make([]driver.Result, times/len(call.Args()))
						if err := call.Results(reply, group, one); err != nil {
							t.Fatal(err)
						}
						out = append(out, one...)
					}
					return out, tgt.Client(t).Get(t.Context(), key).Val()
				}
				got, gotState := run("same", func(c *lua.Run, key string) error {
					return c.AddSame(key, d, times)
				})
				want, wantState := run("single", func(c *lua.Run, key string) error {
					for range times {
						if err := c.Add([]string{key}, []driver.Demand{d}); err != nil {
							return err
						}
					}
					return nil
				})
				if !slices.Equal(got, want) || gotState != wantState {
					t.Errorf("got %+v and state %q, want %+v and %q", got, gotState, want,
						wantState)
				}
				if !got[2].Allowed || got[times-1].Allowed {
					t.Errorf("got %+v, want three admissions and a refusal", got)
				}
			})
		})
	}
}

// unlike is an algorithm with Sums set whose takes do not add up.
type unlike struct {
	driver.Algorithm
	by, source string
}

func (u unlike) Script() driver.Script {
	return driver.Script{Name: "unlike in " + u.by, Source: u.source, Sums: true,
		Args: func(dst []int64, _ driver.Demand) []int64 { return dst }}
}
