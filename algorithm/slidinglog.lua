-- The step of the sliding-window log, twin of Log.Step; logstate.go documents the bytes and their names.
-- args: Max, Window in µs and, unless it is 1 µs, Resolution in µs

-- No function here has upvalues and constants stand as numbers: each of them costs every call, whether used or not.
-- 2^26 parts count from head, 2^45 slop from window, 16 units from flags; 2251799813685248 is the bias of base; slots are 2^40 where there is no ring.

local function step(key, tail, now, op, n, at, args, pos)
  local unpack, pack, sub = struct.unpack, struct.pack, string.sub
  local TAKE, LOOK, FORCE, GIVEBACK, RESET = 0, 1, 2, 3, 4

  -- seek goes on from record i while its stamp is at most edge and its units are fewer than need; a ring's blocks it passes by
  -- the index. It returns where it stops, the units and stamp there, if any, the units it passed, and where it
  -- was and what it had passed after the last stamp of at most bound. seen has what it read before.
  local function seek(seen, key, head, count, slots, i, edge, need, bound)
    local call, unpack, sub = redis.call, struct.unpack, string.sub
    local passed, stop, held = 0, i, 0
    while i < count do
      local slot = (head + i) % slots
      if not seen.high or i >= seen.high then
        while slots < 2 ^ 40 and slot % 64 == 0 and i + 64 < count do
          seen.index = seen.index or call('GETRANGE', key, slots * 12, slots * 12 + slots / 64 * 12 - 1)
          local after, first = (slot + 64) % slots, nil
          if i + 128 < count then
            first = sub(seen.index, after / 64 * 12 + 7, after / 64 * 12 + 12)
          else
            first = call('GETRANGE', key, after * 12 + 6, after * 12 + 11)
          end
          if #seen.index < slots / 64 * 12 or #first < 6 then return count, nil, nil, 2 ^ 53 end
          local sum = unpack('>I6', seen.index, slot / 64 * 12 + 1)
          first = unpack('>I6', first)
          if first > bound or sum >= need then break end
          i, slot, passed, need = i + 64, after, passed + sum, need - sum
          stop, held = i, passed
        end
        seen.low, seen.high = i, math.min(i + 64 - slot % 64, count)
        seen.chunk = call('GETRANGE', key, slot * 12, (slot + seen.high - i) * 12 - 1)
        if #seen.chunk < (seen.high - i) * 12 then return count, nil, nil, 2 ^ 53 end
      end
      local units, stamp = unpack('>I6I6', seen.chunk, (i - seen.low) * 12 + 1)
      if stamp > edge or units >= need then return i, units, stamp, passed, stop, held end
      i, passed, need = i + 1, passed + units, need - units
      if stamp <= bound then stop, held = i, passed end
    end
    return i, nil, nil, passed, stop, held
  end

  local max, window = unpack('>I7I7', args, pos)
  local size = #tail
  if op == RESET then
    if size > 0 then return 1, max, 0, 0, now, nil, '' end
    return 1, max, 0, 0, now
  end

  local count, head, used, flags, kept, e, base, reach, slots = 0, 0, 0, 0, 0, 0, now, 0, 2 ^ 40
  local newest, large, shifted = now, size >= 160, false
  if size > 0 then
    if size < 44 then return nil end
    newest, head, used, kept, base, reach = unpack('>I6I7I7I7I7I4', tail, large and size - 85 or size - 37)
    count, e, flags = head, kept, used % 16
    head = head % 67108864
    count = (count - head) / 67108864
    used = (used - flags) / 16
    if flags >= 8 then
      if not large then return nil end
      slots, flags = unpack('>I4', tail, size - 95) * 64, flags - 8
      if head >= slots or count > slots then return nil end
    end
    if kept > 31622400000000 then
      kept = kept % 35184372088832
      e = (e - kept) / 35184372088832
      if kept == 0 or kept > 31622400000000 or e > 45 then return nil end
    else
      e = 0
    end
    if count == 0 or kept == 0 or flags > 4 or used > 281474976710655 or base >= 9007199254740992 then return nil end
    if not large and (head + flags > 0 or size ~= count * 12 + 32) then return nil end
    base = base - 2251799813685248
    newest = newest + base
    if now - newest >= kept then
      count, used, large = 0, 0, false
    elseif newest - now > window then
      base, newest, shifted = base - (newest - now), now, true
    end
  end

  local t, mark, merge, exponent = now, now, false, 0
  if newest > now then
    t = newest - (2 ^ e - 1)
    if t < now then t = now end
    mark = t
  end
  if #args > pos + 13 then
    local resolution, _ = unpack('>I7', args, pos + 14)
    mark = t + (resolution - t % resolution) % resolution
    _, exponent = math.frexp(resolution - 1)
    if exponent > 45 then exponent = 45 end
  end
  if count > 0 and newest >= mark then
    mark, merge = newest, true
    if e > exponent then exponent = e end
  end

  -- What has left the window, and how much of that an admission drops.
  local edge = t - window - base
  local bound = edge
  if mark ~= t or exponent > 0 then bound = mark - (2 ^ exponent - 1) - window - base end
  local first, live, drop, held = 0, used, 0, used
  local units, stamp, cache, origin, p, last, seen
  if count > 0 then
    cache, p, last = tail, 1, count * 12
    if large then
      origin, p, last = -flags, size - 47 + flags * 12, size
    end
    while true do
      while p < last do
        units, stamp = unpack('>I6I6', cache, p)
        if stamp > edge then break end
        first, live, p = first + 1, live - units, p + 12
        if stamp <= bound then drop, held = first, live end
      end
      if p < last or not large then break end
      local slot = (head + drop) % slots
      if cache ~= tail or first > drop + 3 or drop + 4 >= count or slot + 4 > slots then
        local from, passed, stop, dropped = first, nil, nil, nil
        seen = {}
        first, units, stamp, passed, stop, dropped = seek(seen, key, head, count, slots, from, edge, 2 ^ 53, bound)
        if stop and stop > from then drop, held = stop, live - dropped end
        live, origin = live - passed, nil
        break
      end
      -- The copies are used up: read the next.
      cache, origin, p, last = redis.call('GETRANGE', key, slot * 12, slot * 12 + 47), drop, (first - drop) * 12 + 1, 48
      if #cache < 48 then return nil end
    end
    local all = first == count
    if live < 0 or all and live > 0 or all ~= (newest <= t - window) then return nil end
  end

  if op == FORCE or (op == TAKE and n <= max - live) then
    if count == 0 then base, reach = mark, 0 end
    if n > 281474976710655 - held then n = 281474976710655 - held end
    used, live = held + n, live + n
    local remaining, reset, us = max - live, mark + window - now, nil
    if remaining < 0 then remaining = 0 end
    local same = not shifted and window == kept and exponent == e
    if mark + window - base > reach * 65536 then
      reach = math.ceil((mark + window - base + window / 4) / 65536) + 1
      us, same = base + reach * 65536 - now, false
    end
    newest, kept = mark - base, exponent * 35184372088832 + window

    local stay, from = count - drop, (head + drop) % slots -- records, of which a merge replaces the last
    if merge then
      stay = stay - 1
      n = n + unpack('>I6', tail, large and size - 91 or size - 43)
    end
    local total, room = stay + 1, reach <= 4294967295
    if total <= 10 and room and not large then
      local record = pack('>I6I6I7I7I7I7I4', n, newest, total * 67108864, used * 16, kept, base + 2251799813685248, reach)
      if stay > 0 then record = sub(tail, drop * 12 + 1, (drop + stay) * 12) .. record end
      return 1, remaining, 0, reset, mark, us, record
    end

    local copies -- unless they stay as they are
    flags = 4
    if origin then
      flags = drop - origin
      if cache ~= tail then copies, same = cache, false end
    end
    local slot = from + stay
    if large and room and total > 10 then
      if slots < 2 ^ 40 then flags = flags + 8 end
      local ending = pack('>I6I6I7I7', n, newest, total * 67108864 + from, used * 16 + flags)
      local record = ending
      if not same then ending = ending .. pack('>I7I7I4', kept, base + 2251799813685248, reach) .. (copies or sub(tail, -48)) end
      if slots == 2 ^ 40 then
        if slot < 384 and from <= slot / 16 + 12 then
          if same then ending = ending .. sub(tail, -66) end
          return 1, remaining, 0, reset, mark, us, nil, slot * 12, ending, nil, nil, nil, nil, slot * 12 + #ending
        end
      elseif stay < slots and (slot % 64 > 0 or stay * 8 >= slots) then
        local o3, b3
        if not merge and slot % 64 == 0 then -- a block is complete
          local start, sum = (slot - 64) % slots, 0
          local bytes = redis.call('GETRANGE', key, start * 12, start * 12 + 767)
          if #bytes < 768 then return nil end
          for i = 1, 757, 12 do sum = sum + unpack('>I6', bytes, i) end
          o3, b3 = (slots + start / 64) * 12, pack('>I6', sum) .. sub(bytes, 7, 12)
          if slot == slots and slots < max and stay * 2 > slots then -- longer rather than round
            local blocks = slots / 64
            local more = math.min(math.ceil(blocks / 8), math.ceil(max / 64) - blocks)
            if same then ending = ending .. sub(tail, -66) end
            ending = redis.call('GETRANGE', key, slots * 12, o3 - 1) .. b3 .. string.rep(string.char(0), more * 12) ..
              pack('>I4', blocks + more) .. ending
            blocks = (blocks + more) * 768
            return 1, remaining, 0, reset, mark, us, nil, slot * 12, sub(record, 1, 12), blocks, ending, nil, nil, blocks + #ending
          end
        end
        local bytes = slots / 64 * 780
        -- A ring that says it is longer than it is would be made so.
        if slots > 16384 and #redis.call('GETRANGE', key, bytes + 95, '-1') ~= 1 then return nil end
        return 1, remaining, 0, reset, mark, us, nil, slot % slots * 12, sub(record, 1, 12), bytes + 4, ending, o3, b3, bytes + 96
      end
    end

    -- All records anew, those that stay first.
    local records, call = '', redis.call
    if not large then
      if count > 0 then records = sub(tail, drop * 12 + 1, (drop + stay) * 12) end
    elseif slot > slots then
      records = call('GETRANGE', key, from * 12, slots * 12 - 1) .. call('GETRANGE', key, 0, (slot - slots) * 12 - 1)
    elseif stay > 0 then
      records = call('GETRANGE', key, from * 12, slot * 12 - 1)
    end
    if #records ~= stay * 12 then return nil end
    if not room then
      -- Their base moves: once in 8.9 years.
      local moved, nearer = {}, newest
      if stay > 0 then nearer = unpack('>I6', records, 7) end
      for i = 1, stay do
        local units, stamp = unpack('>I6I6', records, i * 12 - 11)
        moved[i] = pack('>I6I6', units, stamp - nearer)
      end
      records, base, newest = table.concat(moved), base + nearer, newest - nearer
      reach = reach - math.floor(nearer / 65536)
    end
    local ending = pack('>I6I6I7I7I7I7I4', n, newest, total * 67108864, used * 16, kept, base + 2251799813685248, reach)
    if total <= 10 then return 1, remaining, 0, reset, mark, us, records .. ending end
    ending = ending .. sub(records, 1, 48)
    if total <= 320 then return 1, remaining, 0, reset, mark, us, records, stay * 12, ending end
    local blocks = math.ceil(total / 64 * 9 / 8)
    if total <= max then blocks = math.min(blocks, math.ceil(max / 64)) end
    local index = {}
    for b = 1, math.floor(stay / 64) do
      local sum = 0
      for i = b * 768 - 767, b * 768, 12 do sum = sum + unpack('>I6', records, i) end
      index[b] = pack('>I6', sum) .. sub(records, b * 768 - 761, b * 768 - 756)
    end
    ending = pack('>I4I6I6I7I7I7I7I4', blocks, n, newest, total * 67108864, used * 16 + 8, kept, base + 2251799813685248, reach) .. sub(ending, -48)
    index = table.concat(index) .. string.rep(string.char(0), (blocks - #index) * 12)
    return 1, remaining, 0, reset, mark, us, records, stay * 12, sub(ending, 5, 16), blocks * 768, index .. ending
  end

  local allowed, retry = 1, 0
  local bytes, o1, b1, o2, b2, o3, b3
  if op == GIVEBACK or op == LOOK or shifted then -- a look answers what a take would
    bytes = size
    if slots < 2 ^ 40 then bytes = slots / 64 * 780 + 96 elseif large then bytes = (head + count) * 12 + 80 end
    if large and #redis.call('GETRANGE', key, bytes - 1, '-1') ~= 1 then return nil end
  end
  if op == GIVEBACK then
    at = at - base
    local i, after, chunk, from = first, count, tail, 0
    if large then
      local function read(i, k) -- k records from i on
        local slot = (head + i) % slots
        if slot + k <= slots then return redis.call('GETRANGE', key, slot * 12, (slot + k) * 12 - 1) end
        return redis.call('GETRANGE', key, slot * 12, slots * 12 - 1) .. redis.call('GETRANGE', key, 0, (slot + k - slots) * 12 - 1)
      end
      while after - i > 64 do
        local middle = math.floor((i + after) / 2)
        local record = read(middle, 1)
        if #record < 12 then return nil end
        if unpack('>I6', record, 7) <= at then i = middle else after = middle end
      end
      if after > i then chunk, from = read(i, after - i), i end
      if #chunk < (after - i) * 12 then return nil end
    end
    while i < after do
      local middle = math.floor((i + after) / 2)
      if unpack('>I6', chunk, (middle - from) * 12 + 7) < at then i = middle + 1 else after = middle end
    end
    local held, stamp = 0, nil
    if i < count and (i - from) * 12 < #chunk then held, stamp = unpack('>I6I6', chunk, (i - from) * 12 + 1) end
    local back = math.min(n, held, used)
    if stamp == at and back > 0 then
      used, live = used - back, live - back
      local slot = (head + i) % slots
      local start = i - slot % 64 -- of its block
      o1, b1 = slot * 12, pack('>I6', held - back)
      if slots < 2 ^ 40 and i == count - 1 then
        o2, b2 = bytes - 92, b1
      elseif slots < 2 ^ 40 and start + 64 < count then
        o2 = (slots + (slot - slot % 64) / 64) * 12
        b2 = redis.call('GETRANGE', key, o2, o2 + 5)
        if #b2 < 6 then return nil end
        b2 = pack('>I6', unpack('>I6', b2) - back)
      end
      if large and i < 4 then flags = 4 end
      o3, b3 = bytes - 25, pack('>I7', used * 16 + flags + (slots < 2 ^ 40 and 8 or 0))
      if large then o3 = bytes - 73 end
    end
  elseif n > max - live then
    allowed = 0
    local need = live
    if n < max then need = live + n - max end
    if need > 0 then
      if large and units < need then
        first, units, stamp = seek(seen or {}, key, head, count, slots, first, 2 ^ 53, need, 2 ^ 53)
        need = 0
      end
      while not large and units < need and p + 12 < last do
        need, p = need - units, p + 12
        units, stamp = unpack('>I6I6', cache, p)
      end
      if not units or units < need or stamp <= edge then return nil end
      retry = base + stamp + window - now
      if retry > newest + kept - now then retry = newest + kept - now end
    end
  end
  if shifted then
    local closing = pack('>I7I7I4', e * 35184372088832 + kept, base + 2251799813685248, reach)
    if o3 then
      b3 = b3 .. closing
    else
      o3, b3 = bytes - (large and 66 or 18), closing
    end
    if not o1 then o1, b1, o3, b3 = o3, b3, nil, nil end
  end

  local reset, remaining = 0, max - live
  if live > 0 then
    reset = newest + window - now
    if kept < window then reset = newest + kept - now end
  end
  if remaining < 0 then remaining = 0 elseif remaining > max then remaining = max end
  return allowed, remaining, retry, reset, t, nil, nil, o1, b1, o2, b2, o3, b3
end
