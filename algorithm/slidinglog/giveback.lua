-- giveback takes up to n units off the record with a stamp, its block and the sum. If there may
-- then be too many empty records, gone is set to the record.
--include find.lua
local held, stamp = 0, nil
if i < count and (i - from) * RECORD < #chunk then
  held, stamp = unpack('>I6I6', chunk, (i - from) * RECORD + 1)
end
local back = math.min(n, held, used)
if stamp == at and back > 0 then
  used, live = used - back, live - back
  local slot = (head + i) % slots
  o1, b1 = slot * RECORD, pack('>I6', held - back)
  if slots < NO_RING and i == count - 1 then
    o2, b2 = length - LARGE_ENDING, b1
  elseif slots < NO_RING and i - slot % BLOCK + BLOCK < count then -- its block has an entry
    o2 = (slots + (slot - slot % BLOCK) / BLOCK) * RECORD
    b2 = redis.call('GETRANGE', key, o2, o2 + 5)
    if #b2 < 6 then return nil end
    b2 = pack('>I6', unpack('>I6', b2) - back)
  end
  if large and i < 4 then flags = 4 end
  local oldest, records, counted = head, count, back == held and large and i < count - 1
  if back == held then empties = true end
  if counted then
    emptied = emptied + 1
    if slots < NO_RING and count > LINE then
      local taken = i
--include sweep.lua
    elseif hole or emptied * 4 > count + 128 then
      gone = i
    end
  end
  local sum = used * SUM_USED + flags + (empties and EMPTIES or 0)
  if slots < NO_RING then
    o3, b3 = length - LARGE_SUM, pack('>I7', sum + RING)
    if counted then
      o3 = length - RING_ENDING
      b3 = pack('>I4I4I4', emptied, hole and hole + 1 or 0, gap)
        .. string.sub(tail, ending - 3, ending + RECORD)
        .. pack('>I7', records * PLACE_COUNT + oldest) .. b3
    end
  elseif large then
    local place = count * PLACE_COUNT + emptied * LINE_HEAD + head
    o3, b3 = length - LARGE_PLACE, pack('>I7I7', place, sum)
  else
    o3, b3 = length - SUM, pack('>I7', sum)
  end
end
