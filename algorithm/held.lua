-- The step of Held, the twin of Held.Step, around the step of the algorithm inside, which is inner;
-- calls in flight have none. args: ID in 14 bytes, of which the last 8 count; Hold, the unit to
-- which its end is rounded up, and the time-out in µs; Max; how what has timed out is charged: 0 not
-- at all, 1 until then it would have left the window, 2 so, and exactly if few ends are; then those
-- of inner.
--
-- holds is the key of the holds, which are a hash. Integers are unsigned and big-endian, times in
-- µs on the server's clock plus offset. holds.go says what floor, last, offset, older, newer and
-- timed out are. The field '' is the head:
--
--   7  last
--  11  all open holds: units 7, number 4
--  and, unless all of these are 0,
--  28  floor 7, offset 7, older 7, newer 7
--   4  timed out
--   7  cursor of HSCAN: where the search for forgotten holds goes on
--  and for each deadline of open holds, in ascending order,
--  18  deadline 7, units 7, number of holds 4
-- The field of an ID, 8 bytes, is a hold: units 7, deadline 7, instant 7. Most steps read only the
-- first sum, the last, and that of the ID's hold, and cost the same however many there are.
--
-- If one of the two keys is lost: without the hash a settlement finds nothing to settle, and
-- without the state what is held stays held.
--
-- step reads the state of inner itself. After the results of inner it returns nil, or what to write
-- to the hash: the head, or '' to delete the hash; and each of these or nil: the time to live in
-- µs; an ID to store, or to remove if there is no hold; its hold; more IDs to remove, or
-- true to delete the hash before it is written; rest, a step for the units that a settlement uses
-- beyond its hold, which the frame calls when all else is written. It gets the bytes of the state
-- and reads no hash: the hash may be deleted by then, and while a slot moves, a server answers a
-- read of a key that it does not have with an error.
local PEEK, TAKE, FORCE, RESET, HOLD, SETTLE = 1, 0, 2, 3, 4, 5
local SHORT, LONG, SUM, ENTRY = 18, 57, 18, 21 -- bytes
local ID, NO_ID, INNER_ARGS = 6, '\0\0\0\0\0\0\0\0', 49
local MOST_SUMS, MOST_OPEN, MOST_UNITS = 1024, 65536, 2 ^ 48
local GENERATION, TOO_LARGE, UNITS = 32768, 2 ^ 53, 2 ^ 40
local MOST_EXACT = 64 -- sums, after which no end is exact
local MANY = 16 -- open holds; a server keeps a hash with a value over 64 bytes in a hash table
local LAST_TIME = 8936830510563327 -- 2^53 - 2^46 - 1, so that no deadline is too large
local DAY, SLACK = 86400000000, 7200000000 -- µs

local function step(key, holds, now, op, n, at, args, pos)
  local struct, sub, call = struct, string.sub, redis.pcall
  local unpack, pack = struct.unpack, struct.pack
  local id, length, unit, timeout, max, charge =
    sub(args, pos + ID, pos + 13), unpack('>I7I7I7I7I7', args, pos + 14)
  if op == RESET then
    return 1, max, 0, 0, 0, nil, inner and '' or nil, nil, nil, nil, nil, nil, nil, nil, ''
  end
  pos = pos + INNER_ARGS

  -- 1. Read. The first sum begins at byte p, and due is its deadline.
  local named = id ~= NO_ID and (op ~= PEEK or at >= 0)
  local head = call('HGET', holds, '')
  local entry = head and named and call('HGET', holds, id)
  local tail = inner and call('GETRANGE', key, '-160', '-1') or ''
  local err = head and head.err or entry and entry.err or tail.err
  if err and sub(err, 1, 9) == 'WRONGTYPE' then return nil end
  if err then error(err, 0) end
  local last, units, open, due, size, p = 0, 0, 0, TOO_LARGE, 0, 1
  local floor, offset, older, newer, timed_out, cursor = 0, 0, 0, 0, 0, 0
  if head then
    size = #head
    if size % SUM == 0 and size > SHORT then
      last, units, open, due = unpack('>I7I7I4I7', head)
      p = SHORT + 1
    elseif size % SUM == LONG % SUM and size >= LONG then
      last, units, open, floor, offset, older, newer, timed_out, cursor, p =
        unpack('>I7I7I4I7I7I7I7I4I7', head)
      if math.max(floor, offset, older, newer, cursor) >= TOO_LARGE then return nil end
      if p < size then due = unpack('>I7', head, p) end
    else
      return nil
    end
    if last >= TOO_LARGE or units > 2 * MOST_UNITS or size > LONG + SUM * MOST_SUMS then
      return nil
    end
  end

  -- 2. Set the time, which never goes back, and time holds out.
  local clock, write = now + offset, false
  if last - clock > timeout then clock, offset, write = last, offset + last - clock, true end
  local time = clock > last and clock or last
  if time > LAST_TIME then time = LAST_TIME end
  local final, sum, number = floor, 0, 0 -- of the last sum
  if size == SHORT + SUM then
    final, sum, number = due, units, open
  elseif p < size then
    final, sum, number = unpack('>I7I7I4', head, size - (SUM - 1))
  end
  local before = head and final -- nil or false if there is no hash
  local out = due <= time
  while due <= time do
    local freed, holds = unpack('>I7I4', head, p + 7)
    if due <= floor or holds == 0 or freed < holds then return nil end
    units, open = units - freed, open - holds
    floor, timed_out, p = due, timed_out + holds, p + SUM
    if timed_out >= GENERATION then older, newer, timed_out = newer, floor, 0 end
    due = p < size and unpack('>I7', head, p) or TOO_LARGE
  end
  if p > size then -- of the sums only the first and the last are read
    if units ~= 0 or open ~= 0 then return nil end
  elseif due <= floor or final >= TOO_LARGE or number == 0 or sum < number then
    return nil
  elseif size - p < SUM then
    if units ~= sum or open ~= number then return nil end
  elseif final <= due or open <= number or units - sum < open - number then
    return nil
  end
  local forgotten = time - DAY
  if older > forgotten then forgotten = older end
  local held, deadline, instant -- the hold of the ID; held is nil if there is none
  local own, own_units, own_number -- where the sum of the ID's hold is, if that is open
  if entry then
    if #entry ~= ENTRY then return nil end
    held, deadline, instant = unpack('>I7I7I7', entry)
    if held < 1 or held > UNITS or deadline >= TOO_LARGE or instant >= TOO_LARGE then return nil end
    if deadline <= forgotten then
      held = nil
    elseif deadline > floor then
      if deadline == final then
        own, own_units, own_number = size - (SUM - 1), sum, number
      else
        own = p - 1
        repeat
          own = string.find(head, sub(entry, 8, 14), own + 1, true)
          if not own then return nil end
        until (own - p) % SUM == 0
        own_units, own_number = unpack('>I7I4', head, own + 7)
      end
      if own_units - held < own_number - 1 then return nil end
    end
  end
  -- If nothing is held or remembered, the step decides as without a hash.
  local stale = head and final == floor and floor <= forgotten
  if stale then
    floor, offset, older, newer, timed_out, cursor = 0, 0, 0, 0, 0, 0
    clock, time, final, before, write = now, now, 0, nil, false
    if time > LAST_TIME then time = LAST_TIME end
    forgotten = time - DAY
  end

  -- 3. Decide. fits is whether n must fit beside what others hold; else the answer is that of
  -- inner, or yes if always is set.
  local ask, asked, from, others, full, most = PEEK, 1, 0, units, false, nil
  local fits, always = false, false
  if op == FORCE then
    ask, asked, from = FORCE, n, at > 0 and at or 0
  elseif op == SETTLE or op == HOLD and n == 0 then
    always = true
    if op == SETTLE and held and n > 0 then ask, asked, from, most = FORCE, n, instant, held end
  elseif own and held >= n then
    if op == TAKE then ask, asked = TAKE, n else always = true end
  elseif units == 0 and not named then
    ask, asked = op, n
  else
    fits = true
    if own then others = units - held else full = named and open >= MOST_OPEN end
    asked = n
  end
  local allowed, free, retry, reset, stamp, us, whole, o1, b1, o2, b2, o3, b3, length_after, more =
    1, max, 0, 0, now
  if inner then
    allowed, free, retry, reset, stamp, us, whole, o1, b1, o2, b2, o3, b3, length_after, more =
      inner(key, tail, now, ask, asked, from, args, pos, most)
    if not allowed then return nil end
  end
  if always then
    allowed, retry = 1, 0
  elseif fits and (n + others > free or full) then
    -- retry becomes the least time after which n fits beside what is held then. From a deadline on
    -- that is the time until inner has room for n and what is still held, or the deadline if that
    -- is later. The later the deadline, the shorter inner's time. That for n alone is a lower
    -- bound, which mostly decides; else the first deadline that is late enough is found by
    -- bisection.
    allowed = 0
    local bound, last = retry, p < size and final - clock or 0
    if bound < last then
      retry = last
      local waits, needs, count, q, previous = {}, {}, 0, p, floor
      if not full and n + others <= max then count, waits[1], needs[1] = 1, 0, n + others end
      while q < size do
        local due, sum, number = unpack('>I7I7I4', head, q)
        if due <= previous or number == 0 or sum < number then return nil end
        local wait = due - clock
        if wait >= retry then break end
        others = others - sum
        if q == own then others = others + held end
        if others < 0 then return nil end
        if n + others <= free then
          retry = wait
          break
        end
        if n + others <= max then
          -- Of the deadlines before bound, only the last can be the best.
          count = wait < bound and 1 or count + 1
          waits[count], needs[count] = wait, n + others
        end
        previous, q = due, q + SUM
      end
      local low, high, i = 1, count, bound > 0 and 1 or count
      while low <= high do
        local answered, _, later = inner(key, tail, now, PEEK, needs[i], 0, args, pos)
        if not answered then return nil end
        if later <= waits[i] then
          retry, high = waits[i], i - 1
          while low < high and waits[low + 1] < later do low = low + 1 end
        else
          if later < retry then retry = later end
          low = i + 1
          while low <= high and waits[high] >= retry do high = high - 1 end
        end
        i = math.floor((low + high) / 2)
      end
    end
  elseif fits and op == TAKE and inner then
    allowed, free, retry, reset, stamp, us, whole, o1, b1, o2, b2, o3, b3, length_after =
      inner(key, tail, now, TAKE, n, 0, args, pos)
    if not allowed then return nil end
  end

  -- 4. Change the hold and its sum. The new sums are left, that of ends unless number is 0, right.
  local answer, hold, ends, left, right = 0, nil, nil, '', '' -- answer: units
  local place, remove = op == HOLD and allowed == 1, op == SETTLE and held
  if place and n == 0 then
    place = held and (own or open < MOST_OPEN and units + held <= MOST_UNITS)
  end
  if own and (place or remove) then
    units, open = units - held, open - 1
    ends, sum, number = deadline, own_units - held, own_number - 1
    if own > p then left = sub(head, p, own - 1) end
    if own + SUM < size then right = sub(head, own + SUM) end
    if number == 0 and right == '' then
      final = left ~= '' and unpack('>I7', left, #left - (SUM - 1)) or floor
    end
  end
  if place then
    if not own or n > held then instant = inner and stamp or now end
    if n > 0 and (not own or n > held) then held = n end
    if own then -- look for the place of the new sum
      if number > 0 then left = left .. pack('>I7I7I4', ends, sum, number) end
      head, p = left .. right, 1
      size = #head
      if size > 0 then final, sum, number = unpack('>I7I7I4', head, size - (SUM - 1)) end
    end
    if charge > 0 then
      local _, _, _, reset = inner(key, '', now + length, FORCE, max, 0, args, pos)
      length = length + reset
      if charge > 1 and size + 1 - p < SUM * MOST_EXACT then unit = 1 end
    end
    ends = time + length + -(time + length) % unit
    if own and ends < deadline then ends = deadline end
    local due, q = final, size - (SUM - 1)
    if ends > final then final = ends end
    while q >= p and due > ends do
      q = q - SUM
      if q >= p then due, sum, number = unpack('>I7I7I4', head, q) end
    end
    local after = q + SUM
    if q >= p and due == ends then
      sum, number = sum + held, number + 1
    else
      q, sum, number = after, held, 1
    end
    left, right = q > p and sub(head, p, q - 1) or '', after < size and sub(head, after) or ''
    units, open, answer = units + held, open + 1, held
    hold = pack('>I7I7I7', held, ends, instant)
  elseif not remove then
    id = nil
  elseif ask == FORCE and inner then
    answer = n
  end
  write = write or place or remove

  -- 5. The results.
  local remaining, ended = free - units, final > floor and final - clock or 0
  if remaining < 0 then remaining = 0 end
  if reset < ended then reset = ended end
  if op ~= TAKE and op ~= FORCE then stamp = answer end
  local rest
  if more then
    rest = function(key, tail)
      local allowed, free, _, reset, _, us, whole, o1, b1, o2, b2, o3, b3, length_after =
        inner(key, tail, now, FORCE, more, 0, args, pos)
      if not allowed then return nil end
      return 1, math.max(0, free - units), 0, math.max(reset, ended), n,
        us, whole, o1, b1, o2, b2, o3, b3, length_after
    end
  end

  -- 6. What is to be written. gone are some forgotten holds, or true if all are. The hash is kept
  -- for a day after the last deadline, and up to two hours more, so that few changes set its time
  -- to live.
  local gone, ttl
  if final == floor and floor <= forgotten then -- nothing is held or remembered
    head, id = (write or stale and (whole or o1)) and '' or nil, nil
  elseif not write then
    head = nil
  else
    if stale then
      gone = true
    elseif id and (out or cursor > 0) then
      local found = redis.call('HSCAN', holds, cursor, 'COUNT', '16')
      cursor, found = tonumber(found[1]), found[2]
      if cursor >= TOO_LARGE then cursor = 0 end
      for i = 1, #found, 2 do
        if found[i] ~= '' and found[i] ~= id and #found[i + 1] == ENTRY
          and unpack('>I7', found[i + 1], 8) <= forgotten then
          gone = gone or {}
          gone[#gone + 1] = found[i]
        end
      end
    end
    local part = final - final % SLACK
    if not before or part > before then ttl = part + SLACK + DAY - clock end
    if not ends then left, number = sub(head, p), 0 end
    local rare = floor + offset + older + newer + timed_out + cursor > 0 or final == floor
      or open == MANY
    if not rare and number == open then -- one sum
      head = pack('>I7I7I4I7I7I4', time, units, open, ends, units, open)
    else
      if number > 0 then left = left .. pack('>I7I7I4', ends, sum, number) end
      head = rare and pack('>I7I7I4I7I7I7I7I4I7', time, units, open, floor, offset, older, newer,
        timed_out, cursor) or pack('>I7I7I4', time, units, open)
      head = head .. left .. right
    end
  end
  return allowed, remaining, retry, reset, stamp,
    us, whole, o1, b1, o2, b2, o3, b3, length_after, head, ttl, id, hold, gone, rest
end
