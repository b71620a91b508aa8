-- The step of the sliding-window log, twin of Log.Step; logstate.go documents the bytes.
-- args: Max, Window in µs, Resolution in µs, exponent of the slop
local MAX48, BIAS = 281474976710655, 2251799813685248
local RECORD, TRAILER = 12, 24

local function step(s, now, op, n, at, args)
  local max, window, resolution, exponent = args[1], args[2], args[3], args[4]
  local size = s:len()
  if op == RESET then
    if size > 0 then s:delete() end
    return 1, max, 0, 0, now
  end

  local records, count, head, used = '', 0, 0, 0
  local e, base, kept = 0, now, 0
  local newest
  local write = false
  if size > 0 then
    count = (size - TRAILER) / RECORD
    if count < 1 or count % 1 ~= 0 then return nil end
    e, base, kept, head, used = struct.unpack('>I1I7I6I4I6', s:range(-TRAILER, -1))
    if head >= count or e > 45 or base > 4 * BIAS or kept < 1 or kept > 31622400000000 then return nil end
    base = base - BIAS
    records = s:range(0, size - TRAILER - 1)
    newest = base + struct.unpack('>I6', records, size - TRAILER - RECORD + 1)
    if now - newest >= kept then
      records, count, head, used, base, newest = '', 0, 0, 0, now, nil
    elseif newest - now > window then
      base = base - (newest - now)
      newest = now
      write = true
    end
  end

  local function stamp(i) return base + struct.unpack('>I6', records, i * RECORD + 1) end
  local function units(i) return (struct.unpack('>I6', records, i * RECORD + 7)) end
  -- The first record from head on whose stamp is later than edge, and the units from there on.
  local function after(edge)
    local i, sum = head, used
    while i < count and stamp(i) <= edge do
      sum = sum - units(i)
      i = i + 1
    end
    return i, sum
  end

  local t = now
  if count > 0 then t = math.max(now, newest - (2 ^ e - 1)) end
  local first, live = after(t - window)
  if live < 0 then return nil end

  local allowed, retry, decided = 1, 0, t
  local fits = n <= max - live
  if op == FORCE or (op == TAKE and fits) then
    local mark = t + (resolution - t % resolution) % resolution
    if count == 0 then
      base, e = t, exponent
    elseif newest >= mark then
      mark, e = newest, math.max(e, exponent)
    else
      e = exponent
    end
    kept = window
    head, used = after(mark - (2 ^ e - 1) - window)
    n = math.min(n, MAX48 - used)
    used, live = used + n, live + n
    records = string.sub(records, head * RECORD + 1)
    count, head = count - head, 0
    if mark - base > MAX48 then
      -- The records move to a nearer base: once in 8.9 years.
      local nearer, moved = count > 0 and stamp(0) or mark, {}
      for i = 0, count - 1 do moved[i + 1] = struct.pack('>I6I6', stamp(i) - nearer, units(i)) end
      base, records = nearer, table.concat(moved)
    end
    if count > 0 and newest == mark then
      n = n + units(count - 1)
      records = string.sub(records, 1, -RECORD - 1)
    end
    records = records .. struct.pack('>I6I6', mark - base, n)
    newest, decided, write = mark, mark, true
  elseif op == GIVEBACK then
    local low, high = first, count
    while low < high do
      local mid = math.floor((low + high) / 2)
      if stamp(mid) < at then low = mid + 1 else high = mid end
    end
    if low < count and stamp(low) == at then
      local held = units(low)
      local back = math.min(n, held, used)
      if back > 0 then
        used, live, write = used - back, live - back, true
        records = string.sub(records, 1, low * RECORD + 6) .. struct.pack('>I6', held - back) ..
          string.sub(records, (low + 1) * RECORD + 1)
      end
    end
  elseif not fits then
    local need, i = live + math.min(n, max) - max, first
    allowed = 0
    while need > 0 do
      if i >= count or stamp(i) <= t - window then return nil end
      need = need - units(i)
      retry = math.min(stamp(i) + window, newest + kept) - now
      i = i + 1
    end
  end

  if write then
    s:replace(records .. struct.pack('>I1I7I6I4I6', e, base + BIAS, kept, head, used))
    s:keep(newest + kept - now)
  end
  local reset = 0
  if live > 0 then reset = newest + math.min(window, kept) - now end
  return allowed, math.min(math.max(0, max - live), max), retry, reset, decided
end
