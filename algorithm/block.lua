-- The step of Block. args: Max, the longest time in µs.
local PEEK, FORCE, RESET = 1, 2, 3
local SIZE = 8 -- of a state: when the block ends, in µs since the epoch

local function step(key, tail, now, op, n, at, args, pos)
  local max, longest = struct.unpack('>I7I7', args, pos)
  if op == RESET then
    return 1, max, 0, 0, now, nil, #tail > 0 and '' or nil
  end
  local stop = 0
  if #tail > 0 then
    if #tail ~= SIZE then return nil end
    stop = struct.unpack('>I8', tail)
    if stop < 1 or stop >= 2 ^ 53 then return nil end
  end

  local write = stop > now + longest -- the clock was ahead, or the longest time was longer
  stop = math.min(stop, now + longest)
  if op == FORCE then
    local forced = now + math.min(1000 * n, longest)
    if forced > stop then stop, write = forced, true end
  end

  local left = stop - now
  local us, state = nil, nil
  if write then us, state = left, struct.pack('>I8', stop) end
  if left <= 0 then
    return 1, max, 0, 0, now, us, state
  end
  local allowed, retry = 1, 0
  if op <= PEEK then allowed, retry = 0, left end
  return allowed, 0, retry, left, now, us, state
end
