-- The step of Log, as Log.Decide. logformat.go documents the bytes of a state and names its fields;
-- last_window is its window. args: Max, the Window in µs and, unless they are 1 and 0, the
-- resolution in µs, followed by the lead in µs unless it is 0.
--
-- The frame passes the last 160 bytes of the state, which are all bytes of a small one. Most steps
-- need no more. step is one function, in sections: each function beside it would add 1 % or more to
-- the time of every call.
--
-- most, if held.lua sets it, is how many units of a force may join an earlier record. The 15th
-- result is the rest of them.

local TAKE, PEEK, FORCE, RESET = 0, 1, 2, 3

-- Sizes in bytes, and distances to the end of a state: from the newest record before the trailer,
-- from the number of blocks of a ring, and from fields of the trailer.
local RECORD, TRAILER, COPIES, TAIL = 12, 32, 48, 160
local ENDING, LARGE_ENDING, RING_ENDING = 44, 92, 96
local SUM, LARGE_SUM, SPAN, LARGE_SPAN = 25, 73, 18, 66
local BLOCK, BLOCK_BYTES, INDEXED_BLOCK = 64, 768, 780 -- records, bytes, bytes with the entry

-- Records or slots of a form, at most.
local SMALL, NEW_LINE, LINE = 10, 320, 384
local MAX_RECORDS, MAX_SLOTS, MAX_BLOCKS = 33554432, 37748736, 589824
local NO_RING = 2 ^ 40 -- slots of the other forms

local PLACE_COUNT = 67108864 -- 2^26: place is count · 2^26 + head
local SUM_USED, RING = 32, 8 -- sum is used · 32 + flags
local SPAN_EXPONENT = 35184372088832 -- 2^45: span is exponent · 2^45 + window
local MAX_EXPONENT, MAX_WINDOW = 45, 31622400000000
local BASE_BIAS = 2251799813685248 -- 2^51
local EXPIRY_UNIT, MAX_EXPIRY = 65536, 4294967295 -- µs, units
local MAX_SUM, TOO_LARGE = 281474976710655, 2 ^ 53

-- A small state whose only record left the window long before the Unix epoch. It stands for no
-- state.
local NONE = '            \0\0\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0    '

local function step(key, tail, now, op, n, at, args, pos, most)
  local struct = struct
  local unpack, pack = struct.unpack, struct.pack
  local max, window, next_arg = unpack('>I7I7', args, pos)
  local size = #tail
  if op == RESET then
    if size > 0 then return 1, max, 0, 0, now, nil, '' end
    return 1, max, 0, 0, now
  end

  -- 1. The trailer. ending is the offset of the newest record in tail, and slots are those of a
  -- ring. A state whose records have all left the window counts as empty.
  if size == 0 then
    tail, size = NONE, ENDING
  elseif size < ENDING then
    return nil
  end
  local large, ending = true, size - LARGE_ENDING
  if size < TAIL then large, ending = false, size - ENDING end
  local newest, place, sum, last_window, base, expiry = unpack('>I6I7I7I7I7I4', tail, ending + 7)
  local head, flags = place % PLACE_COUNT, sum % SUM_USED
  local count, used = (place - head) / PLACE_COUNT, (sum - flags) / SUM_USED
  local slots, exponent = NO_RING, 0
  if flags >= RING then
    if not large then return nil end
    slots, flags = unpack('>I4', tail, ending - 3) * BLOCK, flags - RING
    if head >= slots or count > slots or slots > MAX_SLOTS then return nil end
  end
  if last_window > MAX_WINDOW then -- it is span
    last_window, exponent = last_window % SPAN_EXPONENT, math.floor(last_window / SPAN_EXPONENT)
    if last_window > MAX_WINDOW or exponent > MAX_EXPONENT then return nil end
  end
  if count == 0 or last_window == 0 or flags > 4 then return nil end
  if used > MAX_SUM or base >= TOO_LARGE then return nil end
  if not large and (head + flags > 0 or size ~= count * RECORD + TRAILER) then return nil end
  base = base - BASE_BIAS
  newest = newest + base
  if now - newest >= last_window then count, used, large = 0, 0, false end

  -- 2. Times: t of the decision, and new_stamp and new_exponent of a record that is admitted. If
  -- merge is set, that record joins the newest. t is not before the earliest time at which the
  -- newest record may have been written. If that is more than a window ahead, the clock has stepped
  -- back, and all stamps are shifted. The key then expires too late, so the expiry becomes 0: the
  -- next admission sets the time to live.
  local t, new_stamp, new_exponent, merge, shifted = now, now, 0, nil, nil
  if newest > now then
    local back = newest - (2 ^ exponent - 1) - now -- by which the clock has stepped back, or more
    if back > window then
      base, newest, expiry, shifted = base - back, newest - back, 0, true
    elseif back > 0 then
      t, new_stamp = now + back, now + back
    end
  end
  if next_arg <= #args then
    local resolution, at_lead, _ = unpack('>I7', args, next_arg)
    local lead = at_lead <= #args and unpack('>I7', args, at_lead) or 0
    new_stamp = t + lead
    new_stamp = new_stamp + (resolution - new_stamp % resolution) % resolution
    _, new_exponent = math.frexp(lead + resolution - 1)
    if new_exponent > MAX_EXPONENT then new_exponent = MAX_EXPONENT end
  end
  if newest >= new_stamp and count > 0 then
    new_stamp, merge = newest, true
    if exponent > new_exponent then new_exponent = exponent end
  end

  -- 3. Expiry: first is the first record in the window, from 0 for the oldest, units and stamp are
  -- its fields, and live are the units from it on. An admission keeps the records from drop on,
  -- which have held units: drop is less than first if the stamp of the admission is ahead of t.
  local edge = t - window - base
  local bound = edge -- that of drop
  if new_stamp ~= t or new_exponent > 0 then
    bound = new_stamp - (2 ^ new_exponent - 1) - window - base
  end
  local first, live, drop, held = 0, used, 0, used
  local units, stamp
  local cache, p, last = tail, 1, count * RECORD -- bytes of records, from byte p to last
  local origin -- which record of a large state is the first in cache
  local unread -- whether records have to be read that follow the cache
  if large then p, last, origin = size - (COPIES - 1) + flags * RECORD, size, -flags end
  while count > 0 do
    while p < last do
      units, stamp = unpack('>I6I6', cache, p)
      if stamp > edge then break end
      first = first + 1
      live = live - units
      p = p + RECORD
      if stamp <= bound then drop, held = first, live end
    end
    if p < last or not large then break end
    -- All copies are stale: the next four records are read at most once, if the first record in the
    -- window may be among them, they are in consecutive slots, and none of them is the newest.
    local slot = (head + drop) % slots
    if cache ~= tail or first > drop + 3 or drop + 4 >= count or slot + 4 > slots then
      unread, origin = true, nil
      break
    end
    cache = redis.call('GETRANGE', key, slot * RECORD, slot * RECORD + COPIES - 1)
    if #cache < COPIES then return nil end
    origin, p, last = drop, (first - drop) * RECORD + 1, COPIES
  end

  -- 4. Further records of a large state: to the first in the window, and, for a refusal, to the one
  -- after which few enough units are left. The index of a ring skips blocks.
  if unread or large and op ~= FORCE and live - units > max - n then
    local call, sub = redis.call, string.sub
    local i, left = first, live -- a record, and the units from it on
    local room = op == FORCE and TOO_LARGE or math.max(0, max - n)
    local skip = unread and bound or TOO_LARGE -- a block is skipped if the next begins by then
    local index, chunk, low, high -- bytes of the index, and of the records from low to high
    while i < count do
      local slot = (head + i) % slots
      if not high or i >= high then
        while slots < NO_RING and slot % BLOCK == 0 and i + BLOCK < count do
          local entries, after = slots / BLOCK * RECORD, (slot + BLOCK) % slots
          index = index or call('GETRANGE', key, slots * RECORD, slots * RECORD + entries - 1)
          local begin
          if i + 2 * BLOCK < count then
            begin = sub(index, after / BLOCK * RECORD + 7, after / BLOCK * RECORD + RECORD)
          else
            begin = call('GETRANGE', key, after * RECORD + 6, after * RECORD + 11)
          end
          if #index < entries or #begin < 6 then return nil end
          local rest = left - unpack('>I6', index, slot / BLOCK * RECORD + 1)
          if unpack('>I6', begin) > skip or not unread and rest <= room then break end
          i, slot, left = i + BLOCK, after, rest
          if unread then first, live, drop, held = i, left, i, left end
        end
        low, high = i, math.min(i + BLOCK - slot % BLOCK, count)
        chunk = call('GETRANGE', key, slot * RECORD, (slot + high - low) * RECORD - 1)
        if #chunk < (high - low) * RECORD then return nil end
      end
      units, stamp = unpack('>I6I6', chunk, (i - low) * RECORD + 1)
      if unread and stamp > edge then unread, skip = nil, TOO_LARGE end
      if not unread and left - units <= room then break end
      i, left = i + 1, left - units
      if unread then
        first, live = i, left
        if stamp <= bound then drop, held = i, left end
      end
    end
    if i == count then units = nil end
  end
  -- All records have left the window if and only if the newest has, and no units are left then.
  if first < count then
    if live < 0 or newest <= t - window then return nil end
  elseif count > 0 and (live ~= 0 or newest > t - window) then
    return nil
  end

  -- 5. An admission. us is the new time to live in µs, or nil. It is a quarter of a Window longer
  -- than needed, so that most admissions need not change it. It is shortened if it is longer than
  -- that, since the Window was reduced or the clock has stepped back.
  local joins = op == FORCE and at > 0 and first < count and at <= newest -- see section 9
  if op == TAKE and n <= max - live or op == FORCE and not joins then
    if count == 0 then base, expiry = new_stamp, 0 end
    local stay = count - drop -- records that are kept
    if stay >= MAX_RECORDS then merge = true end
    used = held + n
    if used > MAX_SUM then n, used = MAX_SUM - held, MAX_SUM end
    local remaining, reset, us = max - live - n, new_stamp + window - now, nil
    if remaining < 0 then remaining = 0 end
    -- Whether the trailer stays the same from span on.
    local same = not shifted and window == last_window and exponent == new_exponent
    local span = new_exponent * SPAN_EXPONENT + window
    newest = new_stamp - base
    local spare = expiry * EXPIRY_UNIT - newest - window
    if spare < 0 or spare > window / 4 + 2 * EXPIRY_UNIT then
      expiry = math.ceil((newest + window + window / 4) / EXPIRY_UNIT) + 1
      us, same = base + expiry * EXPIRY_UNIT - now, false
    end
    if merge then -- the record takes the place of the newest
      stay, n = stay - 1, n + unpack('>I6', tail, ending + 1)
    end
    local total, room = stay + 1, newest + window < (MAX_EXPIRY + 1) * EXPIRY_UNIT
    if room and expiry > MAX_EXPIRY then expiry = MAX_EXPIRY end
    if total <= SMALL and room and not large then
      local bytes = pack('>I6I6I7I7I7I7I4', n, newest, total * PLACE_COUNT, used * SUM_USED, span,
        base + BASE_BIAS, expiry)
      if stay > 0 then
        bytes = string.sub(tail, drop * RECORD + 1, (drop + stay) * RECORD) .. bytes
      end
      return 1, remaining, 0, reset, new_stamp, us, bytes
    end

    -- 6. A line or a ring with room gets the record and its ending. slot is that of the record, and
    -- may be slots for slot 0.
    local from = (head + drop) % slots
    local slot = from + stay
    if large and room and total > SMALL then
      local copies = nil -- the new ones, if any
      flags = 4
      if origin then
        flags = drop - origin
        if cache ~= tail then copies, same = cache, false end
      end
      if slots < NO_RING then flags = flags + RING end
      local bytes
      if same then
        bytes = pack('>I6I6I7I7', n, newest, total * PLACE_COUNT + from, used * SUM_USED + flags)
      else
        bytes = pack('>I6I6I7I7I7I7I4', n, newest, total * PLACE_COUNT + from,
          used * SUM_USED + flags, span, base + BASE_BIAS, expiry)
          .. (copies or string.sub(tail, -COPIES))
      end
      if slots == NO_RING then
        if slot < LINE and from <= slot / 16 + 12 then
          if same then bytes = bytes .. string.sub(tail, -LARGE_SPAN) end
          local start = slot * RECORD
          return 1, remaining, 0, reset, new_stamp, us, nil, start, bytes,
            nil, nil, nil, nil, start + #bytes
        end
      elseif stay < slots and (slot % BLOCK > 0 or stay * 8 >= slots) then
        local record, o3, b3 = string.sub(bytes, 1, RECORD), nil, nil
        if not merge and slot % BLOCK == 0 then
          -- The block before slot is complete: its entry is written. If more than half of the slots
          -- stay in use and the limit may need more, the ring grows at its end instead of
          -- continuing in slot 0.
          local start, units = (slot - BLOCK) % slots, 0
          local full = redis.call('GETRANGE', key, start * RECORD,
            start * RECORD + (BLOCK_BYTES - 1))
          if #full < BLOCK_BYTES then return nil end
          for i = 1, BLOCK_BYTES, RECORD do units = units + unpack('>I6', full, i) end
          local limit = math.min(max, MAX_RECORDS)
          o3 = (slots + start / BLOCK) * RECORD
          b3 = pack('>I6', units) .. string.sub(full, 7, RECORD)
          if slot == slots and slots < limit and stay * 2 > slots then
            local blocks = slots / BLOCK
            local added = math.min(math.ceil(blocks / 8), math.ceil(limit / BLOCK) - blocks)
            if same then bytes = bytes .. string.sub(tail, -LARGE_SPAN) end
            bytes = redis.call('GETRANGE', key, slots * RECORD, o3 - 1) .. b3
              .. string.rep(string.char(0), added * RECORD) .. pack('>I4', blocks + added) .. bytes
            blocks = (blocks + added) * BLOCK_BYTES
            return 1, remaining, 0, reset, new_stamp, us, nil, slot * RECORD, record,
              blocks, bytes, nil, nil, blocks + #bytes
          end
        end
        local index_end = slots / BLOCK * INDEXED_BLOCK
        -- SETRANGE would lengthen a ring that is shorter than its number of blocks requires. Up to
        -- 16384 slots that does little harm; a longer ring is checked.
        local length = index_end + RING_ENDING
        if slots > 16384 and redis.call('STRLEN', key) ~= length then return nil end
        return 1, remaining, 0, reset, new_stamp, us, nil, slot % slots * RECORD, record,
          index_end + 4, bytes, o3, b3, length
      end
    end

    -- 7. Any other state is rewritten, in the form for its number of records. If the expiry is too
    -- large, the base moves, which happens once in 8.9 years.
    local records, call = '', redis.call
    if not large then
      if count > 0 then records = string.sub(tail, drop * RECORD + 1, (drop + stay) * RECORD) end
    elseif slot > slots then
      records = call('GETRANGE', key, from * RECORD, slots * RECORD - 1)
        .. call('GETRANGE', key, 0, (slot - slots) * RECORD - 1)
    elseif stay > 0 then
      records = call('GETRANGE', key, from * RECORD, slot * RECORD - 1)
    end
    if #records ~= stay * RECORD then return nil end
    if not room then
      local moved, nearer = {}, newest
      if stay > 0 then nearer = unpack('>I6', records, 7) end
      for i = 1, stay do
        local units, stamp = unpack('>I6I6', records, (i - 1) * RECORD + 1)
        moved[i] = pack('>I6I6', units, stamp - nearer)
      end
      records, base, newest = table.concat(moved), base + nearer, newest - nearer
      -- expiry is rounded down, so it is not later than the time to live of the key.
      expiry = expiry - math.ceil(nearer / EXPIRY_UNIT)
    end
    local bytes = pack('>I6I6I7I7I7I7I4', n, newest, total * PLACE_COUNT,
      used * SUM_USED + (total > NEW_LINE and RING or 0), span, base + BASE_BIAS, expiry)
    if total <= SMALL then return 1, remaining, 0, reset, new_stamp, us, records .. bytes end
    bytes = bytes .. string.sub(records, 1, COPIES)
    if total <= NEW_LINE then
      return 1, remaining, 0, reset, new_stamp, us, records, stay * RECORD, bytes
    end
    local limit = math.min(max, MAX_RECORDS)
    local blocks = math.min(math.ceil(total / BLOCK * 9 / 8), MAX_BLOCKS)
    if total <= limit then blocks = math.min(blocks, math.ceil(limit / BLOCK)) end
    local index = {}
    for b = 1, math.floor(stay / BLOCK) do
      local units, start = 0, (b - 1) * BLOCK_BYTES
      for p = start + 1, start + BLOCK_BYTES, RECORD do
        units = units + unpack('>I6', records, p)
      end
      index[b] = pack('>I6', units) .. string.sub(records, start + 7, start + RECORD)
    end
    index = table.concat(index) .. string.rep(string.char(0), (blocks - #index) * RECORD)
    return 1, remaining, 0, reset, new_stamp, us, records, stay * RECORD,
      string.sub(bytes, 1, RECORD), blocks * BLOCK_BYTES, index .. pack('>I4', blocks) .. bytes
  end

  -- 8. No record is admitted. Of a large state only the end has been read, so its length may be
  -- wrong. It is checked before bytes are written into it, and by a peek, as a take would do.
  local length = size
  if large and (joins or shifted or op == PEEK) then
    if slots < NO_RING then
      length = slots / BLOCK * INDEXED_BLOCK + RING_ENDING
    else
      length = (head + count) * RECORD + TRAILER + COPIES
    end
    if redis.call('STRLEN', key) ~= length then return nil end
  end
  local allowed, retry = 1, 0
  local whole, o1, b1, o2, b2, o3, b3, rest
  if not joins and n > max - live then -- retry is the time until enough units have left
    allowed = 0
    local need = live
    if n < max then need = live + n - max end
    if need > 0 then
      while not large and units < need and p + RECORD < last do
        need, p = need - units, p + RECORD
        units, stamp = unpack('>I6I6', cache, p)
      end
      if not units or not large and units < need or stamp <= edge then return nil end
      retry = base + stamp + window - now
      if retry > newest + last_window - now then retry = newest + last_window - now end
    end
  end

  -- 9. A force at an instant adds its units to the first record of that time or later.
  if joins then
    at = at - base
    local i, after, records, origin = first, count, tail, 0 -- records from origin on
    if large then
      local function read(i, k) -- k records from i on
        local slot, call = (head + i) % slots, redis.call
        if slot + k <= slots then
          return call('GETRANGE', key, slot * RECORD, (slot + k) * RECORD - 1)
        end
        return call('GETRANGE', key, slot * RECORD, slots * RECORD - 1)
          .. call('GETRANGE', key, 0, (slot + k - slots) * RECORD - 1)
      end
      while after - i > BLOCK do
        local middle = math.floor((i + after) / 2)
        local record = read(middle, 1)
        if #record < RECORD then return nil end
        if unpack('>I6', record, 7) < at then i = middle + 1 else after = middle + 1 end
      end
      records, origin = read(i, after - i), i
      if #records < (after - i) * RECORD then return nil end
    end
    while i < after do
      local middle = math.floor((i + after) / 2)
      if unpack('>I6', records, (middle - origin) * RECORD + 7) < at then
        i = middle + 1
      else
        after = middle
      end
    end
    if (i - origin) * RECORD >= #records then return nil end
    if most and n > most then n, rest = most, n - most end
    local added, slot = math.min(n, MAX_SUM - used), (head + i) % slots
    local function more(bytes, p) -- the units at byte p, with those that are added
      return pack('>I6', math.min(unpack('>I6', bytes, p) + added, MAX_SUM))
    end
    o1, b1 = slot * RECORD, more(records, (i - origin) * RECORD + 1)
    if slots < NO_RING and i == count - 1 then -- its copy before the trailer
      o2, b2 = length - LARGE_ENDING, b1
    elseif slots < NO_RING and i - slot % BLOCK + BLOCK < count then -- the entry of its block
      o2 = (slots + (slot - slot % BLOCK) / BLOCK) * RECORD
      b2 = redis.call('GETRANGE', key, o2, o2 + 5)
      if #b2 < 6 then return nil end
      b2 = more(b2, 1)
    end
    if large and i < 4 then flags = 4 end
    if slots < NO_RING then flags = flags + RING end
    used, live = used + added, live + added
    o3, b3 = length - (large and LARGE_SUM or SUM), pack('>I7', used * SUM_USED + flags)
    if not large then -- written whole
      whole = string.sub(tail, 1, o1) .. b1 .. string.sub(tail, o1 + 7, o3) .. b3
        .. string.sub(tail, -SPAN)
      o1, o3 = nil, nil
    end
  end

  if shifted then
    local bytes = pack('>I7I7I4', exponent * SPAN_EXPONENT + last_window, base + BASE_BIAS, expiry)
    if whole then
      whole = string.sub(whole, 1, -SPAN - 1) .. bytes
    elseif o3 then
      b3 = b3 .. bytes
    else
      o1, b1 = length - (large and LARGE_SPAN or SPAN), bytes
    end
  end
  local reset, remaining = 0, max - live
  if live > 0 then
    reset = newest + window - now
    if last_window < window then reset = newest + last_window - now end
  end
  if remaining < 0 then remaining = 0 elseif remaining > max then remaining = max end
  return allowed, remaining, retry, reset, t, nil, whole, o1, b1, o2, b2, o3, b3, nil, rest
end
