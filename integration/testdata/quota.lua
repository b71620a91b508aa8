-- args: Max, Window in µs
local function step(s, now, op, n, at, args)
  local max, window = args[1], args[2]
  local size = s:len()
  if op == RESET then
    if size > 0 then s:delete() end
    return 1, max, 0, 0, now
  end
  local first, last, used, write = now, window, 0, false
  if size > 0 then
    if size ~= 24 then return nil end
    first, last, used = struct.unpack('>I8I8I8', s:range(0, -1))
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
    s:replace(struct.pack('>I8I8I8', first, last, used))
    s:keep(first + last - now)
  end
  local reset = 0
  if used > 0 then reset = first + math.min(last, window) - now end
  return allowed, math.max(0, max - used), retry, reset, decided
end
