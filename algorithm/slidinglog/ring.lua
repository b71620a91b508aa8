-- ring writes the record into its slot of a ring, and what changes at the end of the state.
local record, o3, b3 = string.sub(bytes, 1, RECORD)
if not merge and slot % BLOCK == 0 then
--include complete.lua
end
local index_end = slots / BLOCK * INDEXED_BLOCK
-- SETRANGE would lengthen a ring that is shorter than its number of blocks requires. Up to 16384
-- slots that does little harm; a longer ring is checked.
if slots > 16384 and #redis.call('GETRANGE', key, index_end + RING_ENDING - 1, '-1') ~= 1 then
  return nil
end
local start = index_end + 16
if empties then
  start = index_end
  bytes = pack('>I4I4I4', emptied, hole and hole + 1 or 0, gap)
    .. string.sub(tail, ending - 3, ending) .. bytes
end
return 1, remaining, 0, reset, new_stamp, us, nil, slot % slots * RECORD,
  record, start, bytes, o3, b3, index_end + RING_ENDING, more
