-- The step of Fixed, in months or quarters if calendar is true. args: Max, the Window in µs, and
-- shift, which is added to a time: a window begins at a multiple of the Window, or days count from
-- 1 March 1969. For a calendar then the number of months, and the day of the month from 0 on.
local TAKE, FORCE, RESET = 0, 2, 3
-- A state: beginning of the window, its length, units, when it counted last
local SIZE, MOST = 32, 2 ^ 48 -- bytes, units
local LONGEST, LAST, DAY = 2 ^ 45, 2 ^ 52, 86400000000 -- µs

-- month returns the first day of the month of a day, and how many months it is after a March. n is
-- in turn 4 times the days since the first March of a century, 4 times those since a 1 March, and 5
-- times those since the first of the month, each with a remainder.
local function month(day)
  local n = (4 * day + 100808) % 146097
  n = (n - n % 4 + 3) % 1461
  n = (n - n % 4) / 4 * 5 + 2
  local rest = n % 153
  return day - (rest - rest % 5) / 5, (n - rest) / 153
end

-- start returns the day on which a window begins in the month with this first day: from days after
-- it, or the last one.
local function start(first, from)
  if from < 28 then return first + from end
  return math.min(first + from, month(first + 31) - 1)
end

-- around returns the begin and the end of the window that contains t.
local function around(t, window, shift, months, from)
  local begin, stop = t - (t + shift) % window
  if calendar then
    local day = math.floor((t + shift) / DAY)
    local first, number = month(day)
    for _ = 1, (number + 2) % months do first = month(first - 1) end
    if start(first, from) > day then
      for _ = 1, months do first = month(first - 1) end
    end
    begin = start(first, from) * DAY - shift
    for _ = 1, months do first = month(first + 31) end
    stop = start(first, from) * DAY - shift
  end
  stop = stop or begin + window
  if begin < 0 then begin = 0 end
  return begin, stop
end

local function step(key, tail, now, op, n, at, args, pos)
  local max, window, shift = struct.unpack('>I7I7I7', args, pos)
  local months, from
  if calendar then months, from = struct.unpack('>I7I7', args, pos + 21) end
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
  local _, stop = around(begin + (counts - counts % 2) / 2, window, shift, months, from)
  local longest, write = stop - begin, false
  if longest > window then longest = window end
  counts = length < longest and length or longest
  local ahead = written - now > window -- the clock was ahead
  if ahead or now >= begin + counts then
    if not ahead then used = 0 end -- the window has ended
    begin, stop = around(now, window, shift, months, from)
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
