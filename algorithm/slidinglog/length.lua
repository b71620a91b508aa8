-- length sets the length of the state and checks that of a large one, of which tail is only the
-- end.
length = size
if slots < NO_RING then
  length = slots / BLOCK * INDEXED_BLOCK + RING_ENDING
elseif large then
  length = (head + count) * RECORD + TRAILER + COPIES
end
if large and #redis.call('GETRANGE', key, length - 1, '-1') ~= 1 then return nil end
