-- length sets the length of the state. Of a large state tail is only the end, so length checks that
-- the state has this length.
length = size
if slots < NO_RING then
  length = slots / BLOCK * INDEXED_BLOCK + RING_ENDING
elseif large then
  length = (head + count) * RECORD + TRAILER + COPIES
end
if large and #redis.call('GETRANGE', key, length - 1, '-1') ~= 1 then return nil end
