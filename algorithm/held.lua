-- The step of Held, the twin of Held.Step, around the step of the algorithm inside, which is inner;
-- calls in flight have none. args: ID in 14 bytes, of which the last 8 count; Hold, the unit to
-- which its end is rounded up, and the time-out in µs; Max; then those of inner.
--
-- The holds are a hash under key .. ':h' or, without inner, under key. Integers are unsigned and
-- big-endian, times in µs on the server's clock plus offset. holds.go says what floor, last,
-- offset, older, newer and timed out are. The field '' is the head:
--
--   7  floor
--   7  last
--  and, unless all of these are 0,
--   7  offset
--   7  older
--   7  newer
--   4  timed out
--   7  cursor of HSCAN: where the search for forgotten holds goes on
--  and for each deadline of open holds, in ascending order,
--  18  deadline 7, units 7, number of holds 4
--
-- The field of an ID, 8 bytes, is a hold: units 7, deadline 7, instant 7.
--
-- step reads the state of inner itself. After the results of inner it returns nil, or a table of
-- what is to be written to the hash: the head, or '' to delete the hash; the new time to live in
-- µs, or nil; an ID to store, or to remove if there is no hold, or nil; its hold, or nil; more IDs
-- to remove, or nil; units of a settlement that are recorded after all else is written, or nil; the
-- key of the hash. For these units the frame calls step for a force, with at = -(all units of the
-- settlement).
local PEEK, TAKE, FORCE, RESET, HOLD, SETTLE = 1, 0, 2, 3, 4, 5
local SHORT, LONG, SUM, ENTRY = 14, 46, 18, 21 -- bytes
local ID, NO_ID, INNER_ARGS, TAIL = 6, '\0\0\0\0\0\0\0\0', 42, 160
local MOST_SUMS, MOST_OPEN, MOST_UNITS = 1024, 65536, 2 ^ 48
local GENERATION, TOO_LARGE, UNITS = 32768, 2 ^ 53, 2 ^ 40
local LAST_TIME = 8936830510563327 -- 2^53 - 2^46 - 1, so that no deadline is too large
local DAY, SLACK = 86400000000, 7200000000 -- µs

local function step(key, tail, now, op, n, at, args, pos)
  local redis, struct, sub = redis, struct, string.sub
  local unpack, pack, call = struct.unpack, struct.pack, redis.pcall
  local id, length, unit, timeout, max =
    sub(args, pos + ID, pos + 13), unpack('>I7I7I7I7', args, pos + 14)
  local holds = inner and key .. ':h' or key
  if op == RESET then
    return 1, max, 0, 0, 0, nil, inner and '' or nil, nil, nil, nil, nil, nil, nil, nil,
      {'', nil, nil, nil, nil, nil, holds}
  end
  pos = pos + INNER_ARGS

  -- 1. Read.
  local named, reply = id ~= NO_ID and (op ~= PEEK or at >= 0), nil
  if named then
    reply = call('HMGET', holds, '', id)
  else
    reply = call('HMGET', holds, '')
  end
  if inner and not reply.err then
    tail = call('GETRANGE', key, '-160', '-1')
    if tail.err then reply = tail end
  end
  if reply.err then
    if sub(reply.err, 1, 9) == 'WRONGTYPE' then return nil end
    error(reply.err, 0)
  end
  local head, entry = reply[1], reply[2]
  local floor, last, offset, older, newer, timed_out, cursor = 0, 0, 0, 0, 0, 0, 0
  local size, p = 0, 1 -- of head; where its sums begin
  if head then
    size = #head
    local form = size % SUM
    if form == SHORT then
      floor, last, p = unpack('>I7I7', head)
    elseif form == LONG % SUM and size >= LONG then
      floor, last, offset, older, newer, timed_out, cursor, p = unpack('>I7I7I7I7I7I4I7', head)
      if offset >= TOO_LARGE or older >= TOO_LARGE or newer >= TOO_LARGE or cursor >= TOO_LARGE
        or size > LONG + SUM * MOST_SUMS then
        return nil
      end
    else
      return nil
    end
    if floor >= TOO_LARGE or last >= TOO_LARGE then return nil end
  elseif entry then
    return nil
  end
  local held, deadline, instant -- the hold of the ID; held is nil if there is none
  if entry then
    if #entry ~= ENTRY then return nil end
    held, deadline, instant = unpack('>I7I7I7', entry)
    if held < 1 or held > UNITS or deadline >= TOO_LARGE or instant >= TOO_LARGE then return nil end
  end

  -- 2. Set the time, which never goes back. Add up the sums, and time holds out.
  local clock, write = now + offset, false
  if last - clock > timeout then clock, offset, write = last, offset + last - clock, true end
  local time = clock > last and clock or last
  if time > LAST_TIME then time = LAST_TIME end
  local units, open, first, final, out, all = 0, 0, p, floor, false, 0
  local own, own_units, own_number -- where the sum of the ID's hold is, if that is open
  local due, sum, number -- of the last sum
  while p < size do
    due, sum, number = unpack('>I7I7I4', head, p)
    if due <= final or due >= TOO_LARGE or number == 0 or sum < number then return nil end
    final, all, p = due, all + sum, p + SUM
    if due <= time then
      floor, first, out, timed_out = due, p, true, timed_out + number
      if timed_out >= GENERATION then older, newer, timed_out = newer, floor, 0 end
    else
      units, open = units + sum, open + number
      if due == deadline then own, own_units, own_number = p - SUM, sum, number end
    end
  end
  if all > 2 * MOST_UNITS then return nil end
  local final_before = final
  local forgotten = time - DAY
  if older > forgotten then forgotten = older end
  if held then
    if deadline <= forgotten then
      held = nil
    elseif deadline > floor and (not own or own_units - held < own_number - 1) then
      return nil
    end
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
    asked = n + others
    if asked > max then asked = max end
  end
  local allowed, free, retry, reset, stamp, us, whole, o1, b1, o2, b2, o3, b3, length_after, rest =
    1, max, 0, 0, now
  if inner then
    allowed, free, retry, reset, stamp, us, whole, o1, b1, o2, b2, o3, b3, length_after, rest =
      inner(key, tail, now, ask, asked, from, args, pos, most)
    if not allowed then return nil end
  end
  if always then
    allowed, retry = 1, 0
  elseif fits and (allowed == 0 or n + others > max or full) then
    -- The least time after which n and what is held then fit.
    local least, wait, q = TOO_LARGE - 1, 0, first
    while wait < least do
      if n + others <= max and (wait > 0 or not full) then
        local answered, _, later = 1, nil, wait > 0 and 0 or retry
        if wait > 0 and inner then
          answered, _, later = inner(key, tail, now, PEEK, n + others, 0, args, pos)
          if not answered then return nil end
        end
        if later < wait then later = wait end
        if later < least then least = later end
      end
      if q > size then break end
      local due, sum = unpack('>I7I7', head, q)
      others, wait = others - sum, due - clock
      if q == own then others = others + held end
      q = q + SUM
    end
    allowed, retry = 0, least
  elseif fits and op == TAKE and inner then
    allowed, free, retry, reset, stamp, us, whole, o1, b1, o2, b2, o3, b3, length_after, rest =
      inner(key, tail, now, TAKE, n, 0, args, pos)
    if not allowed then return nil end
  end

  -- 4. Change the hold and its sum.
  local answer, hold, sums = 0, nil, nil -- answer: units
  local place, remove = op == HOLD and allowed == 1, op == SETTLE and held
  if place and n == 0 then place = held and (own or units + held <= MOST_UNITS) end
  if place or remove then
    write, sums = true, head and sub(head, first) or ''
    if own then
      local at = own - first
      units, own_units, own_number = units - held, own_units - held, own_number - 1
      local left = own_number > 0 and pack('>I7I7I4', deadline, own_units, own_number) or ''
      sums = sub(sums, 1, at) .. left .. sub(sums, at + SUM + 1)
    end
    local q = #sums - SUM + 1
    if q > 0 and own then due, sum, number = unpack('>I7I7I4', sums, q) end
    final = q > 0 and due or floor
    if place then
      if not own or n > held then instant = inner and stamp or now end
      if n > 0 and (not own or n > held) then held = n end
      local ends = time + length + -(time + length) % unit
      if own and ends < deadline then ends = deadline end
      if ends > final then final = ends end
      while q > 0 and due > ends do
        q = q - SUM
        if q > 0 then due, sum, number = unpack('>I7I7I4', sums, q) end
      end
      local joins = q > 0 and due == ends
      local new = pack('>I7I7I4', ends, joins and sum + held or held, joins and number + 1 or 1)
      if not joins then q = q + SUM end -- where the new sum begins
      if q > #sums then
        sums = sums .. new
      else
        sums = sub(sums, 1, q - 1) .. new .. sub(sums, joins and q + SUM or q)
      end
      units, answer = units + held, held
      hold = pack('>I7I7I7', held, ends, instant)
    elseif ask == FORCE and inner then
      answer = n
    end
  else
    id = nil
  end

  -- 5. The results. A force that is the rest of a settlement answers with its units.
  local remaining = free - units
  if remaining < 0 then remaining = 0 end
  if final > floor and reset < final - clock then reset = final - clock end
  if op == FORCE and at < 0 then
    stamp = -at
  elseif op ~= TAKE and op ~= FORCE then
    stamp = answer
  end
  local empty = final == floor and floor <= forgotten
  if not write and not (empty and head and (whole or o1)) then
    return allowed, remaining, retry, reset, stamp,
      us, whole, o1, b1, o2, b2, o3, b3, length_after
  end

  -- 6. What is to be written.
  local change = {'', nil, id, hold, nil, rest, holds}
  if not empty then
    if id and (out or cursor > 0) then -- forget some holds
      local found = redis.call('HSCAN', holds, string.format('%.0f', cursor), 'COUNT', '16')
      cursor, found = tonumber(found[1]), found[2]
      if cursor >= TOO_LARGE then cursor = 0 end
      local gone
      for i = 1, #found, 2 do
        if found[i] ~= '' and found[i] ~= id and #found[i + 1] == ENTRY then
          local _, ended = unpack('>I7I7', found[i + 1])
          if ended <= forgotten then
            gone = gone or {}
            gone[#gone + 1] = found[i]
          end
        end
      end
      change[5] = gone
    end
    -- The hash is kept for a day after the last deadline, and up to two hours more, so that few
    -- changes set its time to live.
    local part = final - final % SLACK
    if not head or part > final_before then change[2] = part + SLACK + DAY - clock end
    sums = sums or sub(head, first)
    if offset + older + newer + timed_out + cursor > 0 then
      change[1] = pack('>I7I7I7I7I7I4I7', floor, time, offset, older, newer, timed_out, cursor)
        .. sums
    else
      change[1] = pack('>I7I7', floor, time) .. sums
    end
  end
  return allowed, remaining, retry, reset, stamp,
    us, whole, o1, b1, o2, b2, o3, b3, length_after, change
end
