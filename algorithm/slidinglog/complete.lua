-- complete adds the complete block before slot to the index of a ring. If more than half of the
-- slots stay in use and the limit may need more, the ring grows at its end instead of starting
-- again at slot 0.
local start, sum = (slot - BLOCK) % slots, 0
local full = redis.call('GETRANGE', key, start * RECORD, start * RECORD + (BLOCK_BYTES - 1))
if #full < BLOCK_BYTES then return nil end
for i = 1, BLOCK_BYTES, RECORD do sum = sum + unpack('>I6', full, i) end
local limit = math.min(max, MAX_RECORDS)
o3, b3 = (slots + start / BLOCK) * RECORD, pack('>I6', sum) .. string.sub(full, 7, RECORD)
if slot == slots and slots < limit and stay * 2 > slots then
  local blocks = slots / BLOCK
  local added = math.min(math.ceil(blocks / 8), math.ceil(limit / BLOCK) - blocks)
  if same then bytes = bytes .. string.sub(tail, -LARGE_SPAN) end
  bytes = redis.call('GETRANGE', key, slots * RECORD, o3 - 1) .. b3
    .. string.rep(string.char(0), added * RECORD)
    .. pack('>I4I4I4I4', emptied, hole and hole + 1 or 0, gap, blocks + added) .. bytes
  blocks = (blocks + added) * BLOCK_BYTES
  return 1, remaining, 0, reset, new_stamp, us, nil, slot * RECORD, record,
    blocks, bytes, nil, nil, blocks + #bytes
end
