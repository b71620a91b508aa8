-- The step of Held, the twin of Held.Step, around the step of the algorithm inside, which is inner;
-- calls in flight have none. args: ID in two parts of 32 bits, Hold and the time-out in µs, Max;
-- then those of inner.
--
-- The holds are a hash under key .. ':h'. Integers are unsigned and big-endian, times in µs on the
-- server's clock plus offset. holds.go says what floor, last, offset, older, newer and timed out
-- are. The field '' is the head:
--
--   7  floor
--   7  last
--   7  offset
--   7  older
--   7  newer
--   4  timed out
--   7  when the hash expires, or later
--   7  cursor of HSCAN: where the search for forgotten holds goes on
--  18  of all holds with this deadline, which ascend: deadline 7, units 7, number 4
--
-- The field of an ID, 8 bytes, is a hold: units 7, deadline 7, instant 7.
--
-- After the results of inner, step returns nil, or a table of what is to be written to the hash:
-- head, or '' to delete the hash; gone, IDs to remove; id and hold to store; us, the new time to
-- live. rest, if set, are units of a settlement that are recorded after all that is written: the
-- frame calls step for a force of them, with at = -(all units of the settlement).
local PEEK, TAKE, FORCE, RESET, HOLD, SETTLE = 1, 0, 2, 3, 4, 5
local HEAD, SUM, ENTRY, INNER_ARGS, TAIL = 53, 18, 21, 35, 160 -- bytes
local MOST_SUMS, MOST_OPEN, MOST_UNITS = 1024, 65536, 2 ^ 48
local GENERATION, TOO_LARGE, UNITS = 32768, 2 ^ 53, 2 ^ 40
local LAST_TIME = 8936830510563327 -- 2^53 - 2^46 - 1, so that no deadline is too large
local DAY, SLACK = 86400000000, 7200000000 -- µs

local function step(key, tail, now, op, n, at, args, pos)
  local redis, struct = redis, struct
  local unpack, pack = struct.unpack, struct.pack
  local high, low, length, timeout, max = unpack('>I7I7I7I7I7', args, pos)
  if op == RESET then
    return 1, max, 0, 0, 0, nil, #tail > 0 and '' or nil,
      nil, nil, nil, nil, nil, nil, nil, nil, {head = ''}
  end
  local id, named = '', high + low > 0 and (op ~= PEEK or at >= 0)
  pos = pos + INNER_ARGS

  -- Read.
  local fields
  if named then
    id = pack('>I4I4', high, low)
    fields = redis.pcall('HMGET', key .. ':h', '', id)
  else
    fields = redis.pcall('HMGET', key .. ':h', '')
  end
  if fields.err then
    if string.sub(fields.err, 1, 9) == 'WRONGTYPE' then return nil end
    error(fields.err, 0)
  end
  local head, entry = fields[1], fields[2]
  local floor, last, offset, older, newer, timed_out, expiry, cursor = 0, 0, 0, 0, 0, 0, 0, 0
  local sums, stop, units, open = {}, 1, 0, 0 -- sums: three numbers each, those before stop
  if head then
    local count = (#head - HEAD) / SUM
    if count < 0 or count > MOST_SUMS or count % 1 > 0 then return nil end
    floor, last, offset, older, newer, timed_out, expiry, cursor =
      unpack('>I7I7I7I7I7I4I7I7', head)
    if floor >= TOO_LARGE or last >= TOO_LARGE or offset >= TOO_LARGE or older >= TOO_LARGE
      or newer >= TOO_LARGE or expiry >= TOO_LARGE or cursor >= TOO_LARGE then
      return nil
    end
    if count > 0 then
      sums = {unpack('>' .. string.rep('I7I7I4', count), head, HEAD + 1)}
      stop = 3 * count + 1
      sums[stop] = nil -- the position after the last
      local before = floor
      for i = 1, stop - 1, 3 do
        local deadline, held, number = sums[i], sums[i + 1], sums[i + 2]
        if deadline <= before or deadline >= TOO_LARGE or number == 0 or held < number then
          return nil
        end
        before, units, open = deadline, units + held, open + number
      end
      if units > 2 * MOST_UNITS then return nil end
    end
  elseif entry then
    return nil
  end

  -- Set the time, which never goes back, and time holds out: those before first.
  local clock, write, first = now + offset, false, 1
  if last - clock > timeout then clock, offset, write = last, offset + last - clock, true end
  local time = clock > last and clock or last
  if time > LAST_TIME then time = LAST_TIME end
  while first < stop and sums[first] <= time do
    floor, units, open = sums[first], units - sums[first + 1], open - sums[first + 2]
    timed_out = timed_out + sums[first + 2]
    if timed_out >= GENERATION then older, newer, timed_out = newer, floor, 0 end
    first = first + 3
  end
  local forgotten = time - DAY
  if older > forgotten then forgotten = older end

  -- Find the hold of the ID: held is nil if there is none, own is where its sum is, if it is open.
  local held, deadline, instant, own
  if entry then
    if #entry ~= ENTRY then return nil end
    held, deadline, instant = unpack('>I7I7I7', entry)
    if held < 1 or held > UNITS or deadline >= TOO_LARGE or instant >= TOO_LARGE then return nil end
    if deadline <= forgotten then
      held = nil
    elseif deadline > floor then
      own = first
      while own < stop and sums[own] < deadline do own = own + 3 end
      if sums[own] ~= deadline or sums[own + 1] - held < sums[own + 2] - 1 then return nil end
    end
  end

  -- Decide. fits is whether n must fit beside what others hold; else the answer is that of inner,
  -- or yes if always is set.
  local ask, asked, from, others, full = PEEK, 1, 0, units, false
  local fits, always = false, false
  if op == FORCE then
    ask, asked, from = FORCE, n, at > 0 and at or 0
  elseif op == SETTLE or op == HOLD and n == 0 then
    always = true
    if op == SETTLE and held and n > 0 and inner then
      ask, asked, from = FORCE, n < held and n or held, instant
    end
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
  local allowed, free, retry, reset, stamp, us, whole, o1, b1, o2, b2, o3, b3, size, more =
    1, max, 0, 0, now
  if inner then
    allowed, free, retry, reset, stamp, us, whole, o1, b1, o2, b2, o3, b3, size, more =
      inner(key, tail, now, ask, asked, from, args, pos)
    if not allowed then return nil end
  elseif #tail > 0 then
    return nil
  end
  if always then
    allowed, retry = 1, 0
  elseif fits and (allowed == 0 or n + others > max or full) then
    -- The least time after which n and what is held then fit.
    local least, wait, i = TOO_LARGE - 1, 0, first
    while wait < least do
      if n + others <= max and (wait > 0 or not full) then
        local answered, _, later = allowed, nil, retry
        if wait > 0 and inner then
          answered, _, later = inner(key, tail, now, PEEK, n + others, 0, args, pos)
        end
        if not answered then return nil end
        if later < wait then later = wait end
        if later < least then least = later end
      end
      if i >= stop then break end
      others, wait = others - sums[i + 1], sums[i] - clock
      if i == own then others = others + held end
      i = i + 3
    end
    allowed, retry = 0, least
  elseif fits and op == TAKE and inner then
    allowed, free, retry, reset, stamp, us, whole, o1, b1, o2, b2, o3, b3, size, more =
      inner(key, tail, now, TAKE, n, 0, args, pos)
    if not allowed then return nil end
  end

  -- Change the hold.
  local settled, gone, hold, rest = 0, nil, nil, nil -- settled: units of the answer
  local place, remove = false, held and op == SETTLE
  if op == HOLD and n > 0 and allowed == 1 then
    place = true
    if own and held < n or not own then instant = stamp end
  elseif op == HOLD and n == 0 and held then
    place = own or units + held <= MOST_UNITS
    if place and not own then instant = stamp end
  end
  if (place or remove) and own then
    sums[own + 1], sums[own + 2] = sums[own + 1] - held, sums[own + 2] - 1
    units = units - held
    if sums[own + 2] == 0 then
      for _ = 1, 3 do table.remove(sums, own) end
      stop = stop - 3
    end
  end
  if place then
    if n > 0 and (not own or held < n) then held = n end
    local _, bits = math.frexp(length)
    local unit = bits > 4 and 2 ^ (bits - 4) or 1
    local due = math.ceil((time + length) / unit) * unit
    if own and due < deadline then due = deadline end
    local i = stop
    while i > first and sums[i - 3] >= due do i = i - 3 end
    if sums[i] == due then
      sums[i + 1], sums[i + 2] = sums[i + 1] + held, sums[i + 2] + 1
    else
      table.insert(sums, i, due)
      table.insert(sums, i + 1, held)
      table.insert(sums, i + 2, 1)
      stop = stop + 3
    end
    units, settled, write = units + held, held, true
    hold = pack('>I7I7I7', held, due, instant)
  elseif remove then
    gone, write = {id}, true
    if ask == FORCE then
      settled = n
      if n > held and (o1 or whole and #whole > TAIL) then
        rest = n - held
      elseif n > held then
        local first_us, first_whole = us, whole
        allowed, free, retry, reset, stamp, us, whole, o1, b1, o2, b2, o3, b3, size, more =
          inner(key, whole or tail, now, FORCE, n - held, 0, args, pos)
        if not allowed then return nil end
        us, whole = us or first_us, whole or first_whole
      end
    end
  end

  local remaining, final = free - units, floor
  if remaining < 0 then remaining = 0 end
  if stop > first then
    final = sums[stop - 3]
    if reset < final - clock then reset = final - clock end
  end
  if op == FORCE and at < 0 then
    stamp = -at
  elseif op ~= TAKE and op ~= FORCE then
    stamp = settled
  end
  local empty = stop == first and floor <= forgotten
  if not write and not (empty and head and (whole or o1)) then
    return allowed, remaining, retry, reset, stamp,
      us, whole, o1, b1, o2, b2, o3, b3, size, more
  end

  -- Encode.
  local change = {head = '', rest = rest}
  if not empty then
    if (place or remove) and (cursor > 0 or first > 1) then -- forget a few
      local found = redis.call('HSCAN', key .. ':h', string.format('%.0f', cursor), 'COUNT', '16')
      cursor, found = tonumber(found[1]), found[2]
      if cursor >= TOO_LARGE then cursor = 0 end
      for i = 1, #found, 2 do
        if found[i] ~= '' and found[i] ~= id and #found[i + 1] == ENTRY then
          local _, ended = unpack('>I7I7', found[i + 1])
          if ended <= forgotten then
            gone = gone or {}
            gone[#gone + 1] = found[i]
          end
        end
      end
    end
    if expiry < final + DAY then
      expiry = final + DAY + SLACK
      change.us = expiry - clock
    end
    change.head = pack('>I7I7I7I7I7I4I7I7' .. string.rep('I7I7I4', (stop - first) / 3),
      floor, time, offset, older, newer, timed_out, expiry, cursor,
      _G.unpack(sums, first, stop - 1))
    change.gone, change.hold, change.id = gone, hold, id
  end
  return allowed, remaining, retry, reset, stamp,
    us, whole, o1, b1, o2, b2, o3, b3, size, more, change
end
