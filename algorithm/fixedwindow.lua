-- The step of Fixed, in calendar months if months is true. args: Max, the Window, and shift, which
-- is the Window less the offset, in µs.
local TAKE, FORCE, RESET = 0, 2, 3
-- A state: beginning of the window, its length, units, when it counted last
local SIZE, MOST = 32, 2 ^ 48 -- bytes, units
local LONGEST, LAST, DAY = 2 ^ 45, 2 ^ 52, 86400000000 -- µs

-- month returns the first day of the month of a day. Both count from 1 December 1969, which is 31
-- days before the epoch. n is in turn 4 times the days since the first March of a century, 4 times
-- those since a 1 March, and 5 times those since the first of the month, each with a remainder.
local function month(day)
  local n = (4 * day + 2877751) % 146097
  n = (n - n % 4 + 3) % 1461
  n = ((n - n % 4) / 4 * 5 + 2) % 153
  return day - (n - n % 5) / 5
end

-- around returns the begin and the end of the window that contains t.
local function around(t, window, shift)
  local begin, stop = t - (t + shift) % window
  if months then
    local day = month(math.floor((t + shift) / DAY))
    begin, stop = day * DAY - shift, month(day + 31) * DAY - shift
  end
  stop = stop or begin + window
  if begin < 0 then begin = 0 end
  return begin, stop
end

local function step(key, tail, now, op, n, at, args, pos)
  local max, window, shift = struct.unpack('>I7I7I7', args, pos)
  if op == RESET then
    return 1, max, 0, 0, now, nil, #tail > 0 and '' or nil
  end
  local begin, length, used, written = 0, 0, 0, 0
  if #tail > 0 then
    if #tail ~= SIZE then return nil end
    begin, length, used, written = struct.unpack('>I8I8I8I8', tail)
    if begin >= LAST or written >= LAST or length < 1 or length > LONGEST or used > MOST then
      return nil
    end
  end

  -- For how long the units may count: to the end of the window that contains the middle of theirs.
  local counts = length < window and length or window
  local _, stop = around(begin + (counts - counts % 2) / 2, window, shift)
  local longest, write = stop - begin, false
  if longest > window then longest = window end
  counts = length < longest and length or longest
  local ahead = written - now > window -- the clock was ahead
  if ahead or now >= begin + counts then
    if not ahead then used = 0 end -- the window has ended
    begin, stop = around(now, window, shift)
    longest = stop - begin
    length, counts, written, write = longest, longest, now, ahead
  end

  local allowed, retry = 1, 0
  local fits = n <= max - used
  if op == FORCE or (op == TAKE and fits) then
    used, length, counts, write = used + n, longest, longest, true
    if used > MOST then used = MOST end
    if now > written then written = now end
  elseif not fits then
    allowed, retry = 0, begin + counts - now
  end
  local remaining, reset, us, state = max - used, 0, nil, nil
  if remaining < 0 then remaining = 0 end
  if used > 0 then reset = begin + counts - now end
  if write then
    us, state = begin + length - now, struct.pack('>I8I8I8I8', begin, length, used, written)
  end
  return allowed, remaining, retry, reset, now, us, state
end
