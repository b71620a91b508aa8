-- The step of the sliding-window log, twin of Log.Step; logstate.go documents the bytes.
-- args: Max, Window in µs, Resolution in µs, exponent of the slop
local RECORD, TRAILER = 12, 30
local MAX48, BIAS = 281474976710655, 2251799813685248
local CHUNK = 128 -- records read at a time before the tail
local SMALL = 200 -- bytes of records up to which the state is rewritten, which keeps its memory tight

-- walk goes on from record i while stamps, in µs since base, are at most edge, taking their units off sum. It returns where it stops, the sum, and
-- the stamp and units there.
local function walk(s, i, count, sum, edge)
  local tail, from = s.tail, s.from
  local chunk, low, high = nil, 0, 0
  while i < count do
    local stamp, units
    local p = i * RECORD - from
    if p >= 0 then
      stamp, units = unpack('>I6I6', tail, p + 1)
    else
      if i < low or i >= high then
        low, high = i, math.min(i + CHUNK, count)
        chunk = range(s, low * RECORD, (high - low) * RECORD)
      end
      stamp, units = unpack('>I6I6', chunk, (i - low) * RECORD + 1)
    end
    if stamp > edge then return i, sum, stamp, units end
    sum = sum - units
    i = i + 1
  end
  return i, sum
end

local function step(s, now, op, n, at, args)
  local max, window, resolution, exponent = unpack('>I7I7I7I7', args)
  local size = s.size
  if op == RESET then
    if size > 0 then replace(s, '') end
    return 1, max, 0, 0, now
  end

  local count, head, used, e, kept, reach = 0, 0, 0, 0, 0, 0
  local base, newest, last = now, now, 0
  local shifted = false
  if size > 0 then
    count = (size - TRAILER) / RECORD
    if count < 1 or count % 1 ~= 0 then return nil end
    newest, last, e, base, kept, head, used, reach = unpack('>I6I6I1I7I6I4I6I6', s.tail, #s.tail - TRAILER - RECORD + 1)
    if head >= count or e > 45 or base > 4 * BIAS or kept < 1 or kept > 31622400000000 then return nil end
    base = base - BIAS
    newest = newest + base
    if now - newest >= kept then
      count, head, used = 0, 0, 0
    elseif newest - now > window then
      base = base - (newest - now)
      newest = now
      shifted = true
    end
  end

  local t = now
  if count > 0 and newest > now then t = math.max(now, newest - (2 ^ e - 1)) end
  local first, live, stamp, units = walk(s, head, count, used, t - window - base)
  if live < 0 then return nil end

  local allowed, retry, decided = 1, 0, t
  if op == FORCE or (op == TAKE and n <= max - live) then
    local mark = t
    if resolution > 1 then mark = t + (resolution - t % resolution) % resolution end
    local merge = false
    if count == 0 then
      base, e, reach = t, exponent, 0
    elseif newest >= mark then
      mark, e, merge = newest, math.max(e, exponent), true
    else
      e = exponent
    end
    local edge = mark - (2 ^ e - 1) - window
    if count > 0 then
      if edge == t - window then
        head, used = first, live
      else
        head, used = walk(s, head, count, used, edge - base)
      end
    end
    n = math.min(n, MAX48 - used)
    used, live = used + n, live + n
    local need = mark + window - base
    if need > reach then
      reach = need + math.floor(window / 4)
      keep(s, base + reach - now)
    end
    kept, newest, decided = window, mark, mark
    if count == 0 then
      replace(s, struct.pack('>I6I6I1I7I6I4I6I6', mark - base, n, e, base + BIAS, kept, 0, used, reach))
    elseif reach > MAX48 then
      -- All move to a nearer base: once in 8.9 years.
      local moved, nearer = {}, mark
      if head < count then nearer = base + unpack('>I6', range(s, head * RECORD, RECORD)) end
      for i = head, count - 1 do
        local off, u = unpack('>I6I6', range(s, i * RECORD, RECORD))
        if merge and i == count - 1 then u = u + n end
        moved[#moved + 1] = struct.pack('>I6I6', base + off - nearer, u)
      end
      if not merge then moved[#moved + 1] = struct.pack('>I6I6', mark - nearer, n) end
      reach = reach - (nearer - base)
      replace(s, table.concat(moved) .. struct.pack('>I1I7I6I4I6I6', e, nearer + BIAS, kept, 0, used, reach))
    else
      local at = count * RECORD -- offset of what is written
      if merge then at, n = at - RECORD, n + last end
      if at < SMALL or head * 4 > count + 16 then
        local records = range(s, head * RECORD, at - head * RECORD)
        replace(s, records .. struct.pack('>I6I6I1I7I6I4I6I6', mark - base, n, e, base + BIAS, kept, 0, used, reach))
      else
        patch(s, at, struct.pack('>I6I6I1I7I6I4I6I6', mark - base, n, e, base + BIAS, kept, head, used, reach))
      end
    end
    local left = max - live
    if left < 0 then left = 0 end
    return 1, left, 0, mark + window - now, mark
  end

  if op == GIVEBACK then
    local low, high = first, count
    at = at - base
    while low < high do
      local mid = math.floor((low + high) / 2)
      if unpack('>I6', range(s, mid * RECORD, RECORD)) < at then low = mid + 1 else high = mid end
    end
    if low < count then
      local off, held = unpack('>I6I6', range(s, low * RECORD, RECORD))
      local back = math.min(n, held, used)
      if off == at and back > 0 then
        used, live, shifted = used - back, live - back, true
        patch(s, low * RECORD + 6, struct.pack('>I6', held - back))
      end
    end
  elseif n > max - live then
    allowed = 0
    local need, i, edge = live + math.min(n, max) - max, first, t - window - base
    local chunk
    while need > 0 do
      if i >= count then return nil end
      if i > first then
        local k = (i - first - 1) % CHUNK
        if k == 0 then chunk = range(s, i * RECORD, math.min(CHUNK, count - i) * RECORD) end
        stamp, units = unpack('>I6I6', chunk, k * RECORD + 1)
      end
      if stamp <= edge then return nil end
      need = need - units
      i = i + 1
    end
    if i > first then retry = math.min(base + stamp + window, newest + kept) - now end
  end

  if shifted then
    patch(s, size - TRAILER, struct.pack('>I1I7I6I4I6I6', e, base + BIAS, kept, head, used, reach))
  end
  local reset = 0
  if live > 0 then reset = newest + math.min(window, kept) - now end
  return allowed, math.min(math.max(0, max - live), max), retry, reset, decided
end
