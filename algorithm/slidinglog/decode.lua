-- decode sets a variable for each field of the trailer; that of window is last_window. An expired
-- state counts as empty, and a missing state as an expired one. It also sets ending, the offset of
-- the newest record in tail; large, for a line or a ring; slots, those of a ring; empties, if the
-- newest record may be empty or emptied is not 0; and hole, the slot of the gap during a sweep.
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
local slots, exponent, emptied, gap = NO_RING, 0, 0, 0
local empties, hole
if flags >= EMPTIES then
  empties, flags = true, flags - EMPTIES
  if not large then -- has no emptied
  elseif flags >= RING then
    emptied, hole, gap = unpack('>I4I4I4', tail, ending - 15)
  else
    emptied, head = math.floor(head / LINE_HEAD), head % LINE_HEAD
  end
end
if flags >= RING then
  if not large then return nil end
  slots, flags = unpack('>I4', tail, ending - 3) * BLOCK, flags - RING
  if head >= slots or count > slots or slots > MAX_SLOTS then return nil end
  if hole == 0 then
    hole = nil
    if gap > 0 then return nil end
  elseif hole then
    hole = hole - 1
    if hole >= slots or hole % BLOCK > 0 then return nil end
    if (hole - head) % slots + gap >= count then return nil end
  end
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
if now - newest >= last_window then
  count, used, large, empties, emptied, hole = 0, 0, false, false, 0, nil
end
