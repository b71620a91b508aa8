-- rewrite makes a new state of the records that stay, in the form for their number, without empty
-- records. Record gone, if set, is dropped whatever is stored. If the expiry is too large, it moves
-- the base, which happens once in 8.9 years.
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
if gone then
  records = string.sub(records, 1, gone * RECORD) .. string.sub(records, (gone + 1) * RECORD + 1)
end
if empties then
  local some = records
--include filter.lua
  records, stay = some, #some / RECORD
  total = stay + 1
end
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
  used * SUM_USED + (n == 0 and EMPTIES or 0) + (total > NEW_LINE and RING or 0), span,
  base + BASE_BIAS, expiry)
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
  local sum, start = 0, (b - 1) * BLOCK_BYTES
  for i = start + 1, start + BLOCK_BYTES, RECORD do sum = sum + unpack('>I6', records, i) end
  index[b] = pack('>I6', sum) .. string.sub(records, start + 7, start + RECORD)
end
index = table.concat(index) .. string.rep(string.char(0), (blocks - #index) * RECORD)
return 1, remaining, 0, reset, new_stamp, us, records, stay * RECORD, string.sub(bytes, 1, RECORD),
  blocks * BLOCK_BYTES, index .. pack('>I4I4I4I4', 0, 0, 0, blocks) .. bytes
