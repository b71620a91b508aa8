-- The frame of a call with several demands. It reads the clock once, runs the step of each demand
-- in order, and writes what the steps of a group return once all of them are admitted.
--
-- The demands of a group are all admitted or leave no trace. Groups are independent, and see what
-- the groups before them wrote. A take that stands for several equal takes is a group by itself. An
-- error in one group, such as that of a step, is the answer of that group alone.
--
-- KEYS   the states, each once
-- ARGV   one string a demand. All integers are unsigned and big-endian:
--          7  now in µs; 0 is the server's clock
--          7  8·n + op; op is 6 for a take and 7 for a hold of which a part is enough
--          7  at; of a take, how many more equal takes it stands for; of these two, the least part
--          4  index in KEYS
--          1  index of the step
--          1  1 if the next demand belongs to the same group
--          7  each of the step's args
-- reply  one string, with 27 bytes a demand:
--          6  remaining, plus 2^44 if refused, 2^45 if the state is corrupt, 2^47 if the group
--             failed, and 2^46 if something was written although nothing was recorded, or before
--             the group failed
--          7  RetryAfter in µs; of a failed group the length of the error's text, which follows
--          7  ResetAfter in µs
--          7  units of a hold, a settlement or a part; of other demands it means nothing
--        one.lua leaves out RetryAfter in the answer to an admitted demand (20 bytes). The answer
--        to equal takes has one or more parts, each a number of takes (7 bytes) and the 27 bytes
--        of the last of them. From one admitted take to the next Remaining falls by n, and
--        ResetAfter grows by what stands in the place of RetryAfter; the refused ones are all
--        alike.

-- From here on pcall is that of redis and unpack that of struct; protect and values are Lua's, of
-- version 5.4 or 5.1.
local protect, values, call, pcall = pcall, table.unpack or unpack, redis.call, redis.pcall
local unpack, pack, sub = struct.unpack, struct.pack, string.sub
local TAKE, PEEK, RESET = 0, 1, 3
local HOLD = 4
local REFUSED, CORRUPT, WROTE = 2 ^ 44, 2 ^ 45, 2 ^ 46
local FAILED, AFTER_WRITE = 2 ^ 47, 'after a write: '

--[[
local held = {} -- suffixes of the key of holds by step; such a step reads its state
--]]
--STEPS--

local now = unpack('>I7', ARGV[1])
local clock = now == 0
if clock then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local wrote -- whether the group has written something
local dirty -- whether a group before it has

-- Creating a function costs time in every call, so each is created when a group needs it.
local run, commit, decide_one, decide_equal, decide_group

local keys, args, reply, group = KEYS, ARGV, {}, {}
for i = 1, #args do
  local arg = args[i]
  local n, at, index, number, more = unpack('>I7I7I4BB', arg, 8) -- all but now
  local op, key, step = n % 8, keys[index], steps[number] or define(number)
  n = (n - op) / 8
  if more == 1 or #group > 0 or op > 5 then
    local d = {arg = arg, key = key, step = step, op = op, n = n, at = at}
    if op > 5 then
      d.op, d.at, d.least, group.least = op == 6 and TAKE or HOLD, 0, at, true
    end
    group[#group + 1] = d
  end
  if more == 0 then
    local ok, answer, left
    wrote = false
    if #group > 0 then
      if not decide_group then
--include group.lua
      end
      ok, answer = protect(decide_group, group)
    elseif op == TAKE and at > 0 then
      local d = {arg = arg, key = key, step = step, op = op, n = n, left = at + 1}
      if not decide_equal then
--include equal.lua
      end
      ok, answer = protect(decide_equal, d, reply)
      left = d.left
    else
      if not decide_one then
--include single.lua
      end
      ok, answer = protect(decide_one, key, step, op, n, at, arg)
    end
    if not ok then
--include failure.lua
    end
    if answer then reply[#reply + 1] = answer end
    dirty = dirty or wrote
    if #group > 0 then group = {} end
  end
end
return reply[2] and table.concat(reply) or reply[1]
