-- The step of Fixed. args: Max, the Window and the offset in µs.
local TAKE, FORCE, RESET = 0, 2, 3
-- A state: beginning of the window, Window of the limit that counted last, units, when it counted
local SIZE, MOST = 32, 2 ^ 48 -- bytes, units
local LONGEST, LAST = 2 ^ 45, 2 ^ 52 -- µs

local function step(key, tail, now, op, n, at, args, pos)
  local max, window, offset = struct.unpack('>I7I7I7', args, pos)
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

  local write = false
  local stop = begin - (begin - offset) % window + window
  if written - now > window then -- the clock was ahead
    stop = now - (now - offset) % window + window
    begin, length, written, write = math.max(0, stop - window), window, now, true
  elseif now >= math.min(stop, begin + length) then -- the window has ended
    stop = now - (now - offset) % window + window
    begin, length, used, written = math.max(0, stop - window), window, 0, now
  end

  local allowed, retry = 1, 0
  local fits = n <= max - used
  if op == FORCE or (op == TAKE and fits) then
    used = math.min(used + n, MOST)
    length, written, write = window, math.max(now, written), true
  elseif not fits then
    allowed, retry = 0, math.min(stop, begin + length) - now
  end
  local reset, us, state = 0, nil, nil
  if used > 0 then reset = math.min(stop, begin + length) - now end
  if write then
    us, state = begin + length - now, struct.pack('>I8I8I8I8', begin, length, used, written)
  end
  return allowed, math.max(0, max - used), retry, reset, now, us, state
end
