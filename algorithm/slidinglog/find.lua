-- find sets `i` to the first record with a stamp of `at` or later, by binary search from record `i`
-- up to, and without, record `after`. chunk holds records, the first of which is record `from`. The
-- newest record needs no search: it is the record of a reservation if nothing was admitted after
-- it.
local i, after, chunk, from = first, count, tail, 0
if at == newest and first < count then i = count - 1 end
at = at - base
if large then
  local function read(i, k) -- k records from i on
    local slot = (head + i) % slots
    if slot + k <= slots then
      return redis.call('GETRANGE', key, slot * RECORD, (slot + k) * RECORD - 1)
    end
    return redis.call('GETRANGE', key, slot * RECORD, slots * RECORD - 1)
      .. redis.call('GETRANGE', key, 0, (slot + k - slots) * RECORD - 1)
  end
  if gap > 0 then -- its stamps are in no order
    local empty = (hole - head) % slots
    local before = i < empty and read(empty - 1, 1)
    if before and #before < RECORD then return nil end
    if before and unpack('>I6', before, 7) >= at then
      after = empty
    else
      i = math.max(i, empty + gap)
    end
  end
  while after - i > 64 do
    local middle = math.floor((i + after) / 2)
    local record = read(middle, 1)
    if #record < RECORD then return nil end
    if unpack('>I6', record, 7) <= at then i = middle else after = middle end
  end
  if after > i then chunk, from = read(i, after - i), i end
  if #chunk < (after - i) * RECORD then return nil end
end
while i < after do
  local middle = math.floor((i + after) / 2)
  if unpack('>I6', chunk, (middle - from) * RECORD + 7) < at then
    i = middle + 1
  else
    after = middle
  end
end
