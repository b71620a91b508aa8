-- The step of the sliding-window log, the twin of Log.Step. logformat.go documents the bytes of a
-- state, and the names of its fields. args: Max, Window in µs and, unless it is 1 µs, Resolution
-- in µs. A few names differ from those in Go: hole is gapAt, live is the variable used of Decide;
-- begin and last in sweep.lua are from and end.
--
-- When the program starts, each include line is replaced by the file that it names, and constants
-- are replaced by their values. A function would cost time in every call, even if it is not used,
-- and each upvalue would cost more. So the parts of the step are files, not functions, and each
-- part uses the variables that the parts before it set.

local TAKE, PEEK, FORCE, RESET, GIVEBACK = 0, 1, 2, 3, 6

-- Sizes of the parts of a state in bytes, and distances from a part to the end: from the newest
-- record before the trailer, from emptied in a ring, and from a field of the trailer.
local RECORD, TRAILER, COPIES, TAIL = 12, 32, 48, 160
local ENDING, LARGE_ENDING, RING_ENDING = 44, 92, 108
local LARGE_PLACE, SUM, LARGE_SUM = 80, 25, 73
local SPAN, LARGE_SPAN = 18, 66

-- Records or slots of a form, at most.
local SMALL, NEW_LINE, LINE = 10, 320, 384
local MAX_RECORDS, MAX_SLOTS, MAX_BLOCKS = 33554432, 37748736, 589824
local NO_RING = 2 ^ 40 -- slots of the other forms

-- A small state whose only record left the window long before the Unix epoch. It stands for no
-- state.
local NONE = '            \0\0\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0    '
local NO_UNITS = '\0\0\0\0\0\0' -- of an empty record
local BLOCK, BLOCK_BYTES, INDEXED_BLOCK = 64, 768, 780 -- records, bytes

local PLACE_COUNT = 67108864 -- 2^26: place is count · 2^26 + head
local LINE_HEAD = 512 -- 2^9: head of a line is emptied · 2^9 + slot
local SUM_USED, RING, EMPTIES = 32, 8, 16 -- sum is used · 32 + flags
local SPAN_EXPONENT = 35184372088832 -- 2^45: span is exponent · 2^45 + window
local MAX_EXPONENT, MAX_WINDOW = 45, 31622400000000
local BASE_BIAS = 2251799813685248 -- 2^51
local EXPIRY_UNIT, MAX_EXPIRY = 65536, 4294967295 -- µs, units
local MAX_SUM, TOO_LARGE = 281474976710655, 2 ^ 53

local function step(key, tail, now, op, n, at, args, pos)
  local struct = struct
  local unpack, pack = struct.unpack, struct.pack
  local max, window, next_arg = unpack('>I7I7', args, pos)
  local size = #tail
  if op == RESET then
    if size > 0 then return 1, max, 0, 0, now, nil, '' end
    return 1, max, 0, 0, now
  end

--include decode.lua
--include stamp.lua
--include expire.lua

  if op == TAKE and n <= max - live or op == FORCE then
--include admit.lua
--include encode.lua
--include rewrite.lua
  end

  -- Nothing is recorded. Up to three ranges of bytes are written: for units that are given back, or
  -- for the base after the clock has stepped back.
  local allowed, retry = 1, 0
  local length, o1, b1, o2, b2, o3, b3, gone, more
  if op == GIVEBACK or op == PEEK or shifted then -- a peek checks what a take would
--include length.lua
  end
  if op == GIVEBACK then
--include giveback.lua
  elseif n > max - live then
--include refuse.lua
  end
  if shifted then
--include shift.lua
  end

  local reset, remaining = 0, max - live
  if live > 0 then
    reset = newest + window - now
    if last_window < window then reset = newest + last_window - now end
  end
  if remaining < 0 then remaining = 0 elseif remaining > max then remaining = max end
  if gone then
--include compact.lua
--include rewrite.lua
  end
  return allowed, remaining, retry, reset, t, nil, nil, o1, b1, o2, b2, o3, b3, nil, more
end
