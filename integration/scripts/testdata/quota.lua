-- args: Max, Window in µs
local function step(key, tail, now, op, n, at, args, pos)
  local TAKE, FORCE, RESET = 0, 2, 3
  local max, window = struct.unpack('>I7I7', args, pos)
  if op == RESET then
    return 1, max, 0, 0, now, nil, #tail > 0 and '' or nil
  end
  local first, last, used, write = now, window, 0, false
  if #tail > 0 then
    if #tail ~= 24 then return nil end
    first, last, used = struct.unpack('>I8I8I8', tail)
    if first >= 2 ^ 53 or last < 1 or last >= 2 ^ 53 or used > 2 ^ 48 then return nil end
    if now - first >= math.min(last, window) then -- it has run out
      first, last, used = now, window, 0
    elseif first - now > window then -- the clock was ahead
      first, write = now, true
    end
  end

  local allowed, retry = 1, 0
  local fits = n <= max - used
  if op == FORCE or (op == TAKE and fits) then
    used, last, write = math.min(used + n, 2 ^ 48), window, true
  elseif not fits then
    allowed, retry = 0, first + math.min(last, window) - now
  end
  local reset, us, state = 0, nil, nil
  if used > 0 then reset = first + math.min(last, window) - now end
  if write then us, state = first + last - now, struct.pack('>I8I8I8', first, last, used) end
  return allowed, math.max(0, max - used), retry, reset, now, us, state
end
