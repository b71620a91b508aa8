-- seek advances from record i while the stamp is at most edge and the units that it passes are
-- fewer than need. It skips blocks of a ring by the index. It returns the record where it stops,
-- its units and stamp, if any, and the units before it; then stop, the record after the last one
-- with a stamp of at most bound, and the units before that. As edge, need or bound, TOO_LARGE means
-- no bound; as the units before the record, it means that bytes of the state are missing. seen
-- keeps what has been read, and has the slot of the gap, if any.
local function seek(seen, key, head, count, slots, i, edge, need, bound)
  local call, unpack, sub = redis.call, struct.unpack, string.sub
  local passed, stop, held = 0, i, 0
  while i < count do
    local slot = (head + i) % slots
    if not seen.high or i >= seen.high then
      while slots < NO_RING and slot % BLOCK == 0 and i + BLOCK < count do
        local entries = slots / BLOCK * RECORD -- bytes of the index
        seen.index = seen.index
          or call('GETRANGE', key, slots * RECORD, slots * RECORD + entries - 1)
        local after, first = (slot + BLOCK) % slots, nil
        if after == seen.hole then break end -- its stamp says nothing of the records before
        if i + 2 * BLOCK < count then
          first = sub(seen.index, after / BLOCK * RECORD + 7, after / BLOCK * RECORD + RECORD)
        else
          first = call('GETRANGE', key, after * RECORD + 6, after * RECORD + 11)
        end
        if #seen.index < entries or #first < 6 then return count, nil, nil, TOO_LARGE end
        local sum = unpack('>I6', seen.index, slot / BLOCK * RECORD + 1)
        first = unpack('>I6', first)
        if first > bound or sum >= need then break end
        i, slot, passed, need = i + BLOCK, after, passed + sum, need - sum
        stop, held = i, passed
      end
      seen.low, seen.high = i, math.min(i + BLOCK - slot % BLOCK, count)
      seen.chunk = call('GETRANGE', key, slot * RECORD, (slot + seen.high - i) * RECORD - 1)
      if #seen.chunk < (seen.high - i) * RECORD then return count, nil, nil, TOO_LARGE end
    end
    local units, stamp = unpack('>I6I6', seen.chunk, (i - seen.low) * RECORD + 1)
    if stamp > edge or units >= need then return i, units, stamp, passed, stop, held end
    i, passed, need = i + 1, passed + units, need - units
    if stamp <= bound then stop, held = i, passed end
  end
  return i, nil, nil, passed, stop, held
end
