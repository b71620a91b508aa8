-- args: Max, Window in µs
local function step(s, now, op, n, at, args)
  local max, window = struct.unpack('>I7I7', args)
  if op == RESET then
    if s.size > 0 then replace(s, '') end
    return 1, max, 0, 0, now
  end
  local first, last, used, write = now, window, 0, false
  if s.size > 0 then
    if s.size ~= 24 then return nil end
    first, last, used = struct.unpack('>I8I8I8', range(s, 0, 24))
    if first >= 2 ^ 53 or last < 1 or last >= 2 ^ 53 or used > 2 ^ 48 then return nil end
    if now - first >= math.min(last, window) then -- it has run out
      first, last, used = now, window, 0
    elseif first - now > window then -- the clock was ahead
      first, write = now, true
    end
  end

  local allowed, retry, decided = 1, 0, now
  local fits = n <= max - used
  if op == FORCE or (op == TAKE and fits) then
    used, last, write = math.min(used + n, 2 ^ 48), window, true
    decided = first
  elseif op == GIVEBACK then
    local back = math.min(n, used)
    if at == first and back > 0 then used, write = used - back, true end
  elseif not fits then
    allowed, retry = 0, first + math.min(last, window) - now
  end
  if write then
    replace(s, struct.pack('>I8I8I8', first, last, used))
    keep(s, first + last - now)
  end
  local reset = 0
  if used > 0 then reset = first + math.min(last, window) - now end
  return allowed, math.max(0, max - used), retry, reset, decided
end
