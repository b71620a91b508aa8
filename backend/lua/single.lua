-- Part of many.lua: a demand that is a group by itself, as most are. It needs no tables.
decide_one = function(key, step, op, n, at, arg)
--[[
  local holds = held[step] and key .. held[step]
--]]
  local tail, foreign = --[[holds or ]]pcall('GETRANGE', key, '-160', '-1'), nil
  if tail.err then
    if sub(tail.err, 1, 9) ~= 'WRONGTYPE' then error(tail.err, 0) end
    if op ~= RESET then return pack('>I6I7I7I7', CORRUPT, 0, 0, 0) end
    tail, foreign = '', true
  end
  local allowed, remaining, retry, reset, units, us, whole, o1, b1, o2, b2, o3, b3, size--[[,
  head, ttl, id, hold, gone, rest]] =
    step(key, tail, now, op, n, at, arg, 28)
  if foreign then whole = '' end
--include answer.lua
--include write.lua
--[[
  if rest then return decide_one(key, rest, op, n, at, arg) end
--]]
  return answer
end
