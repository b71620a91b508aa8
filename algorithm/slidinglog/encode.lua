-- encode writes a small state whole. A line or a ring with room gets the record, its ending and,
-- when a block is complete, an entry of the index. stay records are kept, from slot from on. A
-- state that may have empty records is rewritten if it is small or if there may be too many of
-- them; a large ring is swept instead.
local from = (head + drop) % slots
if merge then
  stay = stay - 1
  n = n + unpack('>I6', tail, ending + 1)
end
local total, room = stay + 1, expiry <= MAX_EXPIRY
if total <= SMALL and room and not large and not empties and n > 0 then
  local bytes = pack('>I6I6I7I7I7I7I4', n, newest, total * PLACE_COUNT, used * SUM_USED, span,
    base + BASE_BIAS, expiry)
  if stay > 0 then
    bytes = string.sub(tail, drop * RECORD + 1, (drop + stay) * RECORD) .. bytes
  end
  return 1, remaining, 0, reset, new_stamp, us, bytes
end

local copies -- the new copies; nil if they stay as they are
flags = 4
if origin then
  flags = drop - origin
  if cache ~= tail then copies, same = cache, false end
end
local slot = from + stay
local compact = empties and (slots == NO_RING or total <= LINE)
  and (hole or emptied * 4 > total + 128)
if hole and drop > (hole - head) % slots then hole, gap = nil, 0 end
if large and room and total > SMALL and not compact then
  local oldest, records, taken, more = from, total, nil, nil
  if empties and slots < NO_RING and stay < slots and slot % BLOCK > 0 then
--include sweep.lua
  end
  local place = records * PLACE_COUNT + oldest
  if emptied > 0 or n == 0 then
    flags = flags + EMPTIES
    if slots == NO_RING then place = place + emptied * LINE_HEAD end
  end
  if slots < NO_RING then flags = flags + RING end
  local bytes
  if same then
    bytes = pack('>I6I6I7I7', n, newest, place, used * SUM_USED + flags)
  else
    bytes = pack('>I6I6I7I7I7I7I4', n, newest, place, used * SUM_USED + flags, span,
      base + BASE_BIAS, expiry) .. (copies or string.sub(tail, -COPIES))
  end
  if slots == NO_RING then
    if slot < LINE and from <= slot / 16 + 12 then
      if same then bytes = bytes .. string.sub(tail, -LARGE_SPAN) end
      local start = slot * RECORD
      return 1, remaining, 0, reset, new_stamp, us, nil, start, bytes,
        nil, nil, nil, nil, start + #bytes
    end
  elseif stay < slots and (slot % BLOCK > 0 or stay * 8 >= slots) then
--include ring.lua
  end
end
local gone
