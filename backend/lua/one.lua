-- The frame of a call with one demand, as most are. many.lua documents the arguments and the
-- reply; here an error is the reply to the call.

local PEEK, FORCE, RESET = 1, 2, 3
local REFUSED, CORRUPT, WROTE = 2 ^ 44, 2 ^ 45, 2 ^ 46
local AFTER_WRITE = 'after a write: '

--STEPS--

--[[
local values, protect = table.unpack or unpack, pcall -- as Lua 5.4 or 5.1 has them
--]]
local redis, struct, key, arg = redis, struct, KEYS[1], ARGV[1]
local call, pcall, pack = redis.call, redis.pcall, struct.pack
local now, n = struct.unpack('>I7I7', arg)
local op, at, clock = n % 8, 0
n = (n - op) / 8
if op == FORCE then at = struct.unpack('>I7', arg, 15) end
if now == 0 then
  clock = true
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

--[[
local wrote_before, holds = nil, KEYS[2] or key
while true do
--]]
local tail, foreign = --[[holds or ]]pcall('GETRANGE', key, '-160', '-1'), nil
if tail.err then
  if string.sub(tail.err, 1, 9) ~= 'WRONGTYPE' then
    error(--[[(wrote_before and AFTER_WRITE or '') .. ]]tail.err, 0)
  end
  if op ~= RESET then return pack('>I6I7I7I7', CORRUPT, 0, 0, 0) end
  tail, foreign = '', true
end
local allowed, remaining, retry, reset, units, us, whole, o1, b1, o2, b2, o3, b3, size--[[,
  head, ttl, id, hold, gone, rest]] =
  step1(key, tail, now, op, n, at, arg, 28)
if not allowed then return pack('>I6I7I7I7', CORRUPT, 0, 0, 0) end
if foreign then whole = '' end
if (whole or o1--[[ or
  head]]) and (allowed ~= 1 or op == PEEK) then remaining = remaining + WROTE end
-- The answer is made before anything is written: what fails in Lua fails here.
local answer, wrote--[[ = nil, wrote_before]]
if allowed == 1 then
  answer = pack('>I6I7I7', remaining, reset, units)
else
  answer = pack('>I6I7I7I7', remaining + REFUSED, retry, reset, units)
end
--include write.lua
--[[
if not rest then return answer end
holds, wrote_before = nil, true
step1 = function(...)
  local results = {protect(rest, ...)}
  if results[1] then return values(results, 2, 15) end
  local err = results[2]
  error(AFTER_WRITE .. (type(err) == 'table' and err.err or tostring(err)), 0)
end
end
--]]
return answer
