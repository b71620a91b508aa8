package algorithm

import (
	"encoding/binary"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/luaconst"
)

// Block refuses a key while it is blocked, and counts nothing. It is not a rate limit: use it
// beside the limits of a key, as another claim of one ratelimit.AllowAll. Create one with
// [Blocking]. Values are immutable and comparable.
//
//	blocked, err := ratelimit.New(store, algorithm.Blocking("blocked", 24*time.Hour))
//	…
//	_, err = blocked.Force(ctx, user, algorithm.BlockFor(15*time.Minute)) // block
//	res, err := blocked.Allow(ctx, user)                                  // is it blocked?
//	err = blocked.Reset(ctx, user)                                        // unblock
//
// Force with n units blocks the key for n milliseconds from now, at most for the longest time;
// [BlockFor] returns n. If two blocks overlap, the one that ends later holds. If the longest time
// is reduced, the next call shortens the key's block. Until the end of the block every take is
// refused, whatever its units. A take changes nothing. A state is 8 bytes.
type Block struct{ limit driver.Limit }

var _ driver.Algorithm = Block{}

// Blocking returns the algorithm that blocks keys, for longest at most. ratelimit.New returns an
// error if the name is missing, or if longest is not between [driver.MinWindow] and
// [driver.MaxWindow].
func Blocking(name string, longest time.Duration) Block {
	return Block{driver.Limit{Name: name, Max: BlockFor(longest), Window: longest}}
}

// BlockFor returns the units of a Force that blocks for d: milliseconds, rounded up. d must be
// positive.
func BlockFor(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Name returns "block1", the name of the encoding.
func (b Block) Name() string { return "block1" }

// Limit returns a limit whose Window is the longest time of a block, and whose Max is that time in
// milliseconds.
func (b Block) Limit() driver.Limit { return b.limit }

// Validate returns an error if the name or the longest time is out of range.
func (b Block) Validate() error { return b.limit.Validate() }

// endSize is the size of a state in bytes: a big-endian integer, the end of the block in µs since
// the epoch.
const endSize = 8

// Step decides d; see [driver.Algorithm].
func (b Block) Step(
	state []byte, now int64, d driver.Demand,
) (next []byte, keep time.Duration, res driver.Result) {
	res = driver.Result{Allowed: true, Limit: b.limit, Remaining: b.limit.Max}
	if d.Op == driver.OpReset {
		return nil, reset(state), res
	}
	end, ok := decodeBlock(state)
	if !ok {
		return nil, -1, driver.Result{}
	}
	longest := now + b.limit.Window.Microseconds()
	write := end > longest // the clock was ahead, or the longest time was longer
	end = min(end, longest)
	if d.Op == driver.OpForce {
		if forced := now + min(1000*d.N, longest-now); forced > end {
			end, write = forced, true
		}
	}
	if left := time.Duration(end-now) * time.Microsecond; left > 0 {
		res.Remaining, res.ResetAfter = 0, left
		if d.Op <= driver.OpPeek {
			res.Allowed, res.RetryAfter = false, left
		}
	}
	if !write {
		return state, 0, res
	}
	return binary.BigEndian.AppendUint64(state[:0], uint64(end)), res.ResetAfter, res
}

// decodeBlock returns when a block ends, and whether state is one that Step writes.
func decodeBlock(state []byte) (end int64, ok bool) {
	if len(state) == 0 {
		return 0, true
	}
	if len(state) != endSize {
		return 0, false
	}
	end = int64(binary.BigEndian.Uint64(state))
	return end, end > 0 && end < 1<<53
}

var blockScript = luaconst.Source(luaFiles, "block.lua")

// Script returns the step in Lua. Its args are Max and the longest time in microseconds.
func (b Block) Script() driver.Script {
	return driver.Script{Name: b.Name(), Source: blockScript, Args: limitArgs}
}
