-- expire finds the first record in the window:
--
--   first        its index, from 0 for the oldest
--   units stamp  those of this record
--   live         units from first on
--   drop held    the record from which on an admission keeps records, and their units: drop is at
--                most first, and less if the stamp of the admission is ahead of t
--
-- A large state has copies of its oldest records in tail. If they do not suffice, the next four
-- records or the index of a ring are read:
--
--   cache        bytes of some records
--   origin       index of the first of these
--   p last       where the next record begins, and where the records end
local edge = t - window - base
local bound = edge -- that of drop
if new_stamp ~= t or new_exponent > 0 then
  bound = new_stamp - (2 ^ new_exponent - 1) - window - base
end
local first, live, drop, held = 0, used, 0, used
local units, stamp, cache, origin, p, last, seen
if count > 0 then
  cache = tail
  if large then
    origin = -flags
    p = size - (COPIES - 1) + flags * RECORD
    last = size
  else
    p, last = 1, count * RECORD
  end
  while true do
    while p < last do
      units, stamp = unpack('>I6I6', cache, p)
      if stamp > edge then break end
      first = first + 1
      live = live - units
      p = p + RECORD
      if stamp <= bound then drop, held = first, live end
    end
    if p < last or not large then break end
    local slot = (head + drop) % slots
    -- The next four records are read at most once, if the first record in the window may be among
    -- them, they are in consecutive slots, and none of them is the newest.
    if cache ~= tail or first > drop + 3 or drop + 4 >= count or slot + 4 > slots then
--include seek.lua
      local from, passed, stop, dropped = first, nil, nil, nil
      seen = {hole = hole}
      first, units, stamp, passed, stop, dropped =
        seek(seen, key, head, count, slots, from, edge, TOO_LARGE, bound)
      if stop and stop > from then drop, held = stop, live - dropped end
      live, origin = live - passed, nil
      break
    end
    -- All copies are stale: read the next four records.
    cache = redis.call('GETRANGE', key, slot * RECORD, slot * RECORD + COPIES - 1)
    if #cache < COPIES then return nil end
    origin, p, last = drop, (first - drop) * RECORD + 1, COPIES
  end
  -- All records have expired if and only if the newest has, and no units are left then.
  if first < count then
    if live < 0 or newest <= t - window then return nil end
  elseif live ~= 0 or newest > t - window then
    return nil
  end
end
