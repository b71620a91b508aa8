-- sweep moves the records of some blocks of a large ring, as sweep does in Go. The ring has records
-- records, the first in slot oldest. Record taken, if set, counts as empty whatever is stored.
if not hole and emptied * 4 > records + 128 then
  local slot = (oldest + records - 1) % slots
  hole, gap, emptied = slot - slot % BLOCK, 0, BLOCK
end
if hole then
--include ranges.lua

  local last = (hole - oldest) % slots
  local top, begin = last + gap, last - BLOCK * math.ceil(math.floor(records / 16) / BLOCK)
  if begin < 0 then begin = 0 end
  local rest = -(oldest + top) % BLOCK
  local some, above = read(begin, last - begin), read(top, rest)
  if #some < (last - begin) * RECORD or #above < rest * RECORD then return nil end
  if taken and taken >= begin and taken < last then
    some = string.sub(some, 1, (taken - begin) * RECORD) .. NO_UNITS
      .. string.sub(some, (taken - begin) * RECORD + 7)
  elseif taken and taken >= top and taken < top + rest then
    above = string.sub(above, 1, (taken - top) * RECORD) .. NO_UNITS
      .. string.sub(above, (taken - top) * RECORD + 7)
  end
--include filter.lua
  local to = top - #some / RECORD
  if begin < 4 then flags = 4 end
  local whole = to -- the first record of the blocks whose entries are written
  local content = some .. above -- from whole on
  local low = math.min(to, last)
  if begin == 0 then
    local skip = -(oldest + to) % BLOCK
    whole, content = to + skip, string.sub(content, skip * RECORD + 1)
    write((oldest + to) * RECORD, some, slots * RECORD)
  else
    whole = to - (oldest + to) % BLOCK
    content = zeros(to - whole) .. content
    write((oldest + begin) * RECORD, zeros(low - begin), slots * RECORD)
    write((oldest + to) * RECORD, some, slots * RECORD)
  end
  local ranges, index = #more, {}
  if begin > 0 then -- entries of the blocks that have become empty
    local clear = (to < top and math.min(whole, last) or last) - begin
    write((oldest + begin) / BLOCK * RECORD, zeros(clear / BLOCK), slots / BLOCK * RECORD)
  end
  if whole < top and to < top then
    for i = 1, #content, BLOCK_BYTES do
      local sum = 0
      for j = i, i + BLOCK_BYTES - 1, RECORD do sum = sum + unpack('>I6', content, j) end
      index[#index + 1] = pack('>I6', sum) .. string.sub(content, i + 6, i + RECORD - 1)
    end
    write((oldest + whole) / BLOCK * RECORD, table.concat(index), slots / BLOCK * RECORD)
  end
  for i = ranges + 1, #more, 2 do more[i] = more[i] + slots * RECORD end
  if begin == 0 then
    oldest, records, hole, gap = (oldest + to) % slots, records - to, nil, 0
  else
    hole, gap = (oldest + begin) % slots, to - begin
  end
end
