-- The frame of a call with one demand; framemany.lua says what travels. It stays lean: this is what most calls run.

local key, arg = KEYS[1], ARGV[1]
local call, now, n = redis.call, struct.unpack('>I7I7', arg)
local op, at, clock = n % 8, 0, now == 0
n = (n - op) / 8
if op == 3 then at = struct.unpack('>I7', arg, 15) end
if clock then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

--STEPS--

local tail = redis.pcall('GETRANGE', key, '-160', '-1')
if tail.err then
  if string.sub(tail.err, 1, 9) ~= 'WRONGTYPE' then error(tail.err) end
  if op ~= 4 then return struct.pack('>I6I7I7I7', 2 ^ 45, 0, 0, 0) end
  call('DEL', key)
  tail = ''
end
local allowed, remaining, retry, reset, stamp, us, whole, o1, b1, o2, b2, o3, b3, size = step1(key, tail, now, op, n, at, arg, 28)
if not allowed then return struct.pack('>I6I7I7I7', 2 ^ 45, 0, 0, 0) end
if whole or o1 then
--WRITE--
  if size and length ~= size then return struct.pack('>I6I7I7I7', 2 ^ 45, 0, 0, 0) end
  if allowed ~= 1 or op == 1 then remaining = remaining + 2 ^ 46 end
end
if allowed == 1 then return struct.pack('>I6I7I7', remaining, reset, stamp) end
return struct.pack('>I6I7I7I7', remaining + 2 ^ 44, retry, reset, stamp)
