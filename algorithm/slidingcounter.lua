-- The step of Counter. args: Max and the Window in µs.
local TAKE, FORCE, RESET = 0, 2, 3
-- A state: when a unit was counted last, Window of the limit that counted it, units of the previous
-- window, units of the window of the last count
local SIZE, MOST = 32, 2 ^ 44 -- bytes, units
local LONGEST, LAST = 2 ^ 45, 2 ^ 52 -- µs

-- Returns a·b ÷ m, rounded down, and the remainder. The arguments are integers below 2^45. If a
-- double cannot hold the product, a is processed in digits of 7 bits, so that no intermediate
-- result exceeds 2^53.
local function product(a, b, m)
  local whole = a * b
  if whole < 2 ^ 53 then
    local rest = whole % m
    return (whole - rest) / m, rest
  end
  local quotient, rest = 0, 0
  for shift = 42, 0, -7 do
    local x = rest * 128 + b * (math.floor(a / 2 ^ shift) % 128)
    rest = x % m
    quotient = quotient * 128 + (x - rest) / m
  end
  return quotient, rest
end

-- Returns the units that count if `covered` µs of the previous window still count.
local function counted(previous, current, covered, window)
  local units, rest = product(previous, covered, window)
  if rest > 0 then units = units + 1 end
  return current + units
end

-- Returns the time from the beginning of the current window until at most room units count.
local function free(previous, current, room, window)
  local passed, units = window, previous
  room = room - current
  if room < 0 then passed, room, units = 2 * window, room + current, current end
  if units <= room then return passed - window end
  local covered = product(room, window, units)
  return passed - covered
end

local function step(key, tail, now, op, n, at, args, pos)
  local max, window = struct.unpack('>I7I7', args, pos)
  if op == RESET then
    return 1, max, 0, 0, now, nil, #tail > 0 and '' or nil
  end
  local written, length, previous, current = 0, 1, 0, 0
  if #tail > 0 then
    if #tail ~= SIZE then return nil end
    written, length, previous, current = struct.unpack('>I8I8I8I8', tail)
    if written >= LAST or length < 1 or length > LONGEST or previous > MOST or current > MOST then
      return nil
    end
  end

  local write = false
  if written - now > window then -- the clock was ahead
    written, length, write = now, window, true
  end
  local stop = written - written % length + 2 * length
  if now >= stop then
    written, length, previous, current = now, window, 0, 0
    stop = written - written % length + 2 * length
  end
  local state = nil
  if write then state = struct.pack('>I8I8I8I8', written, length, previous, current) end

  local latest = now > written and now or written
  local begin = latest - latest % window
  local passed = (begin - (written - written % window)) / window
  if passed == 1 then
    previous, current = current, 0
  elseif passed > 1 then
    previous, current = 0, 0
  end
  local covered = begin + window - now
  if covered > window then covered = window end
  local used = counted(previous, current, covered, window)

  local allowed, retry = 1, 0
  local fits = n <= max - used
  if op == FORCE or (op == TAKE and fits) then
    if n > MOST - current then n = MOST - current end
    current, used, stop = current + n, used + n, begin + 2 * window
    state = struct.pack('>I8I8I8I8', latest, window, previous, current)
  elseif not fits then
    allowed = 0
    retry = math.min(begin + free(previous, current, max - n, window), stop) - now
  end
  local remaining, reset, us = max - used, 0, nil
  if remaining < 0 then remaining = 0 end
  if used > 0 then
    local time = begin + free(previous, current, 0, window)
    reset = (time < stop and time or stop) - now
  end
  if state then us = stop - now end
  return allowed, remaining, retry, reset, now, us, state
end
