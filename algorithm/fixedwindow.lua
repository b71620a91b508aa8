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
  return math.max(0, begin), stop or begin + window
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
  local _, stop = around(begin + math.floor(math.min(window, length) / 2), window, shift)
  local longest, write = math.min(window, stop - begin), false
  local ahead = written - now > window -- the clock was ahead
  if ahead or now >= begin + math.min(length, longest) then
    if not ahead then used = 0 end -- the window has ended
    begin, stop = around(now, window, shift)
    longest = stop - begin
    length, written, write = longest, now, ahead
  end

  local allowed, retry = 1, 0
  local fits = n <= max - used
  if op == FORCE or (op == TAKE and fits) then
    used = math.min(used + n, MOST)
    length, written, write = longest, math.max(now, written), true
  elseif not fits then
    allowed, retry = 0, begin + math.min(length, longest) - now
  end
  local reset, us, state = 0, nil, nil
  if used > 0 then reset = begin + math.min(length, longest) - now end
  if write then
    us, state = begin + length - now, struct.pack('>I8I8I8I8', begin, length, used, written)
  end
  return allowed, math.max(0, max - used), retry, reset, now, us, state
end
