package scripts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
)

var heldBudget = algorithm.Budget(algorithm.SlidingLog(driver.PerHour("hour", 10)))

// decideHeld decides a group of demands on keys, at now or, if that is 0, on the server's clock.
func decideHeld(
	t *testing.T, client redis.UniversalClient, now int64, keys []string, ds ...driver.Demand,
) ([]driver.Result, error) {
	t.Helper()
	var call lua.Run
	call.Begin(now)
	if err := call.Add(keys, ds); err != nil {
		t.Fatal(err)
	}
	out := make([]driver.Result, len(ds))
	return out, call.Results(runCall(t, client, &call), 0, out)
}

// ofBudget is a demand under heldBudget, by ID 7.
func ofBudget(op driver.Op, n int64) driver.Demand {
	d := driver.Demand{Key: "k", Algorithm: heldBudget, Op: op, N: n}
	if op > driver.OpReset {
		d.ID = 7
	}
	return d
}

// sevens returns numbers of 7 bytes each.
func sevens(ns ...uint64) string {
	var b strings.Builder
	for _, n := range ns {
		var buf [8]byte
		binary.BigEndian.PutUint64(buf[:], n)
		b.Write(buf[1:])
	}
	return b.String()
}

// TestHeldCorrupt: a hash that no step wrote is an error, is not changed, and is removed by a reset
// together with the state, which may be corrupt as well.
func TestHeldCorrupt(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		now := time.Now().UnixMicro()
		later := uint64(now + time.Hour.Microseconds())
		const id = "\x00\x00\x00\x00\x00\x00\x00\x07"
		four := func(n uint64) string { return sevens(n)[3:] }
		sum := func(deadline, units, number uint64) string {
			return sevens(deadline, units) + four(number)
		}
		good := sum(later, 3, 1)
		// head is that of one hold of 3 units or, if floor is not 0, that after time-outs.
		head := func(floor, last uint64, sums ...string) string {
			long := ""
			if floor > 0 {
				long = sevens(floor, 0, 0, 0) + four(0) + sevens(0)
			}
			return sevens(last, 3) + four(1) + long + strings.Join(sums, "")
		}
		var many []string
		for i := range uint64(1027) {
			many = append(many, sum(later+i, 3, 1))
		}
		for name, fields := range map[string][]string{
			"short head":          {"", head(0, 1, good)[1:]},
			"empty head":          {"", ""},
			"no sum":              {"", head(0, 1)},
			"half a sum":          {"", head(0, 1, good, good[:13])},
			"floor too large":     {"", head(1<<53, 1)},
			"last too large":      {"", head(0, 1<<53, good)},
			"deadline too large":  {"", head(0, 1, sum(1<<53, 3, 1))},
			"deadline descends":   {"", head(0, 1, sum(later+1, 2, 1), sum(later, 1, 1))},
			"deadline twice":      {"", head(0, 1, sum(later, 2, 1), sum(later, 1, 1))},
			"deadline at floor":   {"", head(later, 1, good)},
			"no holds":            {"", sevens(1, 3) + four(0) + good},
			"no holds in a sum":   {"", head(1, 1, sum(later, 3, 0))},
			"fewer units":         {"", sevens(1, 3) + four(4) + good},
			"fewer units in all":  {"", head(1, 1, sum(later, 4, 1))},
			"fewer holds in all":  {"", head(1, 1, sum(later, 3, 2))},
			"units without a sum": {"", head(1, 1)},
			"more in one sum":     {"", head(1, 1, sum(later, 2, 1))},
			"fewer units left":    {"", head(0, 1, sum(later, 1, 1), sum(later+1, 3, 1))},
			"too many units":      {"", sevens(1, 1<<52) + four(1) + sum(later, 1<<52, 1)},
			"too many sums":       {"", head(0, 1, many...)},
			"hold without sum":    {"", head(1, 1), id, sevens(3, later, 1)},
			"hold of no sum":      {"", head(0, 1, good), id, sevens(3, later-1, 1)},
			"hold of more":        {"", head(0, 1, good), id, sevens(4, later, 1)},
			"hold of none":        {"", head(0, 1, good), id, sevens(0, later, 1)},
			"hold of too many":    {"", head(0, 1, good), id, sevens(1<<41, later, 1)},
			"hold too short":      {"", head(0, 1, good), id, sevens(3, later)},
			"instant too large":   {"", head(0, 1, good), id, sevens(3, later, 1<<53)},
			"hold ends too late":  {"", head(0, 1, good), id, sevens(3, 1<<53, 1)},
			"not a hash":          nil,
			"state is not string": {"", head(0, 1, good)},
		} {
			key := fmt.Sprintf("{held:%d}:%s", time.Now().UnixNano(),
				strings.ReplaceAll(name, " ", ""))
			var err error
			switch {
			case fields == nil:
				err = client.Set(t.Context(), key+":h", "x", time.Hour).Err()
			case name == "state is not string":
				err = client.RPush(t.Context(), key, "x").Err()
				fallthrough
			default:
				err = errors.Join(err, client.HSet(t.Context(), key+":h", fields).Err())
			}
			if err != nil {
				t.Fatal(err)
			}
			dump := func() string {
				return client.Dump(t.Context(), key).Val() +
					client.Dump(t.Context(), key+":h").Val()
			}
			before := dump()
			for _, d := range []driver.Demand{
				ofBudget(driver.OpHold, 1), ofBudget(driver.OpHold, 0),
				ofBudget(driver.OpSettle, 1), ofBudget(driver.OpTake, 1),
			} {
				if d.Op == driver.OpTake && len(fields) > 2 {
					continue // it does not read the hold
				}
				for _, keys := range [][]string{{key}, {key, key + "2"}} {
					ds := []driver.Demand{d, ofBudget(driver.OpSettle, 1)}[:len(keys)]
					res, err := decideHeld(t, client, now, keys, ds...)
					if !errors.Is(err, driver.ErrCorruptState) || dump() != before {
						t.Errorf("%s: %v of %d: %+v, %v, and changed: %t", name, d.Op, len(keys),
							res, err, dump() != before)
					}
				}
			}
			res, err := decideHeld(t, client, now, []string{key}, ofBudget(driver.OpReset, 1))
			if err != nil || res[0].Remaining != 10 ||
				client.Exists(t.Context(), key, key+":h").Val() != 0 {
				t.Errorf("%s: a reset: %+v, %v, or keys are left", name, res, err)
			}
		}
	})
}

// TestHeldSpoiled changes bytes of a hash of holds, or cuts it. Whatever the demand, the hash is
// corrupt or the result is in range.
func TestHeldSpoiled(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		r := rand.New(rand.NewPCG(7, 8))
		now := time.Now().UnixMicro()
		hash := make(map[string][2][]byte) // by whether there was a time-out: head, hold of ID 7
		for name, ages := range map[string][]time.Duration{
			"short": {0}, "long": {2 * time.Hour, 50 * time.Second, 20 * time.Second, 0},
		} {
			key := fmt.Sprintf("{held:%d}", time.Now().UnixNano())
			for i, age := range append(ages, 0) {
				d := ofBudget(driver.OpHold, 1)
				if d.ID = uint64(i + 1); i == len(ages) {
					d.ID, d.N = 7, 2
				}
				if _, err := decideHeld(t, client, now-age.Microseconds(), []string{key},
					d); err != nil {
					t.Fatal(err)
				}
			}
			head, _ := client.HGet(t.Context(), key+":h", "").Bytes()
			own, _ := client.HGet(t.Context(), key+":h", "\x00\x00\x00\x00\x00\x00\x00\x07").Bytes()
			hash[name] = [2][]byte{head, own}
		}
		corrupt, trials := 0, 300
		for i := range trials {
			fields := hash[[]string{"short", "long"}[i%2]]
			which := r.IntN(2) * r.IntN(2) // mostly the head
			fields[which] = spoil(r, fields[which])
			key := fmt.Sprintf("{held:%d}", time.Now().UnixNano())
			ops := []driver.Demand{ofBudget(driver.OpTake, 1), ofBudget(driver.OpTake, 10),
				ofBudget(driver.OpForce, 1), ofBudget(driver.OpHold, 0), ofBudget(driver.OpHold, 3),
				ofBudget(driver.OpHold, 9), ofBudget(driver.OpSettle, 0),
				ofBudget(driver.OpSettle, 5), ofBudget(driver.OpPeek, 4)}
			for _, d := range ops {
				pipe := client.Pipeline()
				pipe.Del(t.Context(), key, key+":h")
				pipe.HSet(t.Context(), key+":h", "", fields[0],
					"\x00\x00\x00\x00\x00\x00\x00\x07", fields[1])
				if _, err := pipe.Exec(t.Context()); err != nil {
					t.Fatal(err)
				}
				keys := []string{key, key + "2"}[:1+i%3%2]
				ds := []driver.Demand{d, ofBudget(driver.OpSettle, 1)}[:len(keys)]
				res, err := decideHeld(t, client, now, keys, ds...)
				switch {
				case errors.Is(err, driver.ErrCorruptState):
					corrupt++
				case err != nil || res[0].Remaining < 0 || res[0].Remaining > 10 ||
					res[0].RetryAfter < 0 || res[0].ResetAfter < 0:
					t.Fatalf("%v of %x: %+v, %v", d.Op, fields, res, err)
				}
			}
			client.Del(t.Context(), key, key+":h", key+"2", key+"2:h")
		}
		if all := trials * 9; corrupt < all/10 || corrupt == all {
			t.Errorf("%d of %d are corrupt, want a tenth or more and not all", corrupt, all)
		}
	})
}

// TestHeldResetRefused: a reset in a refused group leaves both keys.
func TestHeldResetRefused(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		for _, corrupt := range []bool{false, true} {
			key := fmt.Sprintf("{held:%d}", time.Now().UnixNano())
			for _, d := range []driver.Demand{ofBudget(driver.OpTake, 2),
				ofBudget(driver.OpHold, 3)} {
				if _, err := decideHeld(t, client, 0, []string{key}, d); err != nil {
					t.Fatal(err)
				}
			}
			want := int64(5)
			if corrupt {
				client.Del(t.Context(), key+":h")
				client.Set(t.Context(), key+":h", "x", time.Hour)
				want = 10
			}
			full := ofBudget(driver.OpForce, 10)
			if _, err := decideHeld(t, client, 0, []string{key + "2"}, full); err != nil {
				t.Fatal(err)
			}
			res, err := decideHeld(t, client, 0, []string{key, key + "2"},
				ofBudget(driver.OpReset, 1), ofBudget(driver.OpTake, 1))
			if err != nil || !res[0].Allowed || res[0].Remaining != want || res[1].Allowed ||
				client.Exists(t.Context(), key, key+":h").Val() != 2 {
				t.Errorf("corrupt %t: %+v, %v, or a key is gone", corrupt, res, err)
			}
		}
	})
}

// TestHeldLosesKey: without its holds a settlement finds none, and without its state what is held
// stays held.
func TestHeldLosesKey(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		for name, tt := range map[string]struct {
			lost                             string
			remaining, units, afterRemaining int64
		}{
			"holds": {":h", 8, 0, 8},
			"state": {"", 7, 1, 9},
		} {
			key := fmt.Sprintf("{held:%d}", time.Now().UnixNano())
			for _, d := range []driver.Demand{ofBudget(driver.OpTake, 2),
				ofBudget(driver.OpHold, 3)} {
				if _, err := decideHeld(t, client, 0, []string{key}, d); err != nil {
					t.Fatal(err)
				}
			}
			if n := client.Del(t.Context(), key+tt.lost).Val(); n != 1 {
				t.Fatalf("%s: %d keys deleted", name, n)
			}
			peek, err := decideHeld(t, client, 0, []string{key}, ofBudget(driver.OpPeek, 1))
			if err != nil || peek[0].Remaining != tt.remaining {
				t.Errorf("%s lost: %+v, %v; want %d remaining", name, peek, err, tt.remaining)
			}
			res, err := decideHeld(t, client, 0, []string{key}, ofBudget(driver.OpSettle, 1))
			if err != nil || res[0].Units != tt.units || res[0].Remaining != tt.afterRemaining {
				t.Errorf("%s lost: settlement: %+v, %v; want %d units, %d remaining",
					name, res, err, tt.units, tt.afterRemaining)
			}
		}
	})
}

// TestHeldExpiry: holds are kept for 24 hours after the last deadline, and up to two hours more;
// their key is gone with the last of them, and the state keeps its own time to live.
func TestHeldExpiry(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		for _, now := range []int64{0, time.Now().UnixMicro()} {
			for _, several := range []bool{false, true} {
				key := fmt.Sprintf("{held:%d}", time.Now().UnixNano())
				do := func(d driver.Demand) {
					t.Helper()
					keys, ds := []string{key}, []driver.Demand{d}
					if several {
						keys, ds = append(keys, key+"2"), append(ds, ofBudget(driver.OpSettle, 0))
					}
					if res, err := decideHeld(t, client, now, keys, ds...); err != nil ||
						!res[0].Allowed {
						t.Fatalf("%v: %+v, %v", d.Op, res, err)
					}
				}
				kept := func(what string, hold time.Duration) {
					t.Helper()
					ttl := client.PTTL(t.Context(), key+":h").Val()
					if least := 24*time.Hour + hold; ttl < least-10*time.Second ||
						ttl > least+2*time.Hour+hold/8+10*time.Second {
						t.Errorf("%s: holds expire in %v, want 24h and %v, or up to 2h more",
							what, ttl, hold)
					}
				}
				do(ofBudget(driver.OpHold, 3))
				kept("a hold", time.Minute)
				long := ofBudget(driver.OpHold, 0)
				long.HoldTimeout = 16 * time.Minute
				for range 8 {
					do(long)
				}
				kept("a longer hold", 16*time.Minute)
				if client.Exists(t.Context(), key).Val() != 0 {
					t.Error("a hold writes the state")
				}
				do(ofBudget(driver.OpSettle, 2))
				if client.Exists(t.Context(), key+":h").Val() != 0 {
					t.Error("the key of holds is left without a hold")
				}
				if ttl := client.PTTL(t.Context(), key).Val(); ttl < time.Hour-10*time.Second {
					t.Errorf("the state expires in %v, want an hour or more", ttl)
				}
			}
		}
	})
}

// TestHeldForgets: what has timed out more than 24 hours ago is deleted bit by bit.
func TestHeldForgets(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		key := fmt.Sprintf("{held:%d}", time.Now().UnixNano())
		flight := algorithm.InFlight("calls", 1000)
		now, id := time.Now().UnixMicro(), uint64(0)
		hold := func() {
			t.Helper()
			id++
			d := driver.Demand{Key: "k", Algorithm: flight, Op: driver.OpHold, N: 1, ID: id << 40}
			if res, err := decideHeld(t, client, now, []string{key}, d); err != nil ||
				!res[0].Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		for range 300 {
			hold()
		}
		now += 23 * time.Hour.Microseconds()
		hold()
		if n := client.HLen(t.Context(), key).Val(); n != 302 {
			t.Fatalf("%d fields after 23 hours, want 302", n)
		}
		now += 2 * time.Hour.Microseconds()
		for range 60 {
			hold()
		}
		// A search that was under way ends before a new one begins, at the next time-out.
		now += 2 * time.Minute.Microseconds()
		for range 40 {
			hold()
		}
		if n := client.HLen(t.Context(), key).Val(); n != 102 {
			t.Errorf("%d fields after 25 hours, want those of 101 holds and the head", n)
		}
	})
}

// TestHeldFull: beside 65,536 open holds there is no further one until one is settled or times out.
func TestHeldFull(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		key := fmt.Sprintf("{held:%d}", time.Now().UnixNano())
		now := time.Now().UnixMicro()
		const others = 65535
		later := now + 30*time.Second.Microseconds()
		number := sevens(others)[3:]
		head := sevens(uint64(now), others) + number +
			sevens(uint64(later), others) + number
		if err := client.HSet(t.Context(), key, "", head).Err(); err != nil {
			t.Fatal(err)
		}
		flight := algorithm.InFlight("calls", 1_000_000)
		do := func(op driver.Op, n int64, id uint64) driver.Result {
			t.Helper()
			d := driver.Demand{Key: "k", Algorithm: flight, Op: op, N: n, ID: id}
			res, err := decideHeld(t, client, now, []string{key}, d)
			if err != nil {
				t.Fatal(err)
			}
			return res[0]
		}
		if res := do(driver.OpHold, 1, 1); !res.Allowed {
			t.Errorf("the 65,536th hold: %+v", res)
		}
		if res := do(driver.OpHold, 1, 2); res.Allowed || res.RetryAfter != 30*time.Second {
			t.Errorf("the 65,537th hold: %+v, want one that is refused for 30 seconds", res)
		}
		if res := do(driver.OpHold, 2, 1); !res.Allowed || res.Units != 2 {
			t.Errorf("one of 65,536 holds is enlarged: %+v", res)
		}
		do(driver.OpSettle, 0, 1)
		if res := do(driver.OpHold, 1, 2); !res.Allowed {
			t.Errorf("a hold after a settlement: %+v", res)
		}
		now = later
		if res := do(driver.OpHold, 1, 3); !res.Allowed || res.Remaining != 1_000_000-2 {
			t.Errorf("a hold after the others have timed out: %+v", res)
		}
	})
}
