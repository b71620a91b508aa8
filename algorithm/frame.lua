-- The frame that runs steps: reads the clock once, runs the step of each demand in order on a handle of its state,
-- and commits what the steps wrote.
--
-- KEYS  the states, each once
-- ARGV  now in µs, or '' for the server's clock; then for each group: the number of its demands; then for each demand:
--       index in KEYS, index in steps, op, n, at, number of args, args
-- reply five integers a demand: allowed (1, 0, or -1 for a corrupt state), remaining, RetryAfter and ResetAfter in µs, stamp
--
-- The demands of a group are all admitted or leave no trace; groups are independent. Every step reads what those before it
-- wrote; nothing reaches the server before all steps have run.

local call = redis.call

local State = {}
State.__index = State

-- len is the number of bytes; 0 means no history.
function State:len() return #self.value end

-- range returns the bytes from i to j, both included, from 0; negative ones count from the end.
function State:range(i, j)
  if i >= 0 then i = i + 1 end
  if j >= 0 then j = j + 1 end
  return string.sub(self.value, i, j)
end

function State:replace(bytes) self.value, self.dirty = bytes, true end

function State:append(bytes) self:replace(self.value .. bytes) end

-- patch overwrites the bytes from offset on, from 0.
function State:patch(offset, bytes)
  self:replace(string.sub(self.value, 1, offset) .. bytes .. string.sub(self.value, offset + #bytes + 1))
end

function State:delete() self:replace('') end

-- keep says for how many µs from now the state is needed. A step that writes, other than by delete, calls it.
function State:keep(us) self.us = us end

local function load(key)
  local value = redis.pcall('GET', key)
  local s = setmetatable({key = key, value = value or '', dirty = false}, State)
  if type(value) == 'table' then
    if string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then error(value.err) end
    s.value, s.foreign = '', true
  end
  return s
end

local clock = ARGV[1] == ''
local now
if clock then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(ARGV[1])
end

local states, reply = {}, {}

local function run(d, looking)
  local s, op, n, at = d.state, d.op, d.n, d.at
  local always = looking and op > LOOK
  if looking then op = LOOK end
  if always then n, at = 1, 0 end
  if s.foreign and op == RESET then s.value, s.foreign = '?', nil end
  local allowed, remaining, retry, reset, stamp
  if not s.foreign then
    allowed, remaining, retry, reset, stamp = d.step(s, now, op, n, at, d.args)
  end
  if not allowed then
    if d.op ~= RESET then return -1, 0, 0, 0, 0 end
    return d.step(setmetatable({value = ''}, State), now, RESET, n, at, d.args) -- to a Reset it is empty
  end
  if always then allowed, retry = 1, 0 end
  return allowed, remaining, retry, reset, stamp
end

local p, last = 2, #ARGV
while p <= last do
  local size, group = tonumber(ARGV[p]), {}
  p = p + 1
  for i = 1, size do
    local index = tonumber(ARGV[p])
    local s = states[index]
    if not s then
      s = load(KEYS[index])
      states[index] = s
    end
    local d = {
      state = s, step = steps[tonumber(ARGV[p + 1])], op = tonumber(ARGV[p + 2]),
      n = tonumber(ARGV[p + 3]), at = tonumber(ARGV[p + 4]), args = {},
    }
    local nargs = tonumber(ARGV[p + 5])
    for j = 1, nargs do d.args[j] = tonumber(ARGV[p + 5 + j]) end
    p = p + 6 + nargs
    if size > 1 then d.value, d.dirty, d.us, d.foreign = s.value, s.dirty, s.us, s.foreign end
    group[i] = d
  end

  local start, refused = #reply, false
  for i = 1, size do
    local r = start + 5 * i
    reply[r - 4], reply[r - 3], reply[r - 2], reply[r - 1], reply[r] = run(group[i], false)
    if reply[r - 4] ~= 1 then refused = true end
  end
  if refused and size > 1 then
    for i = 1, size do
      local d, r = group[i], start + 5 * i
      local s = d.state
      s.value, s.dirty, s.us, s.foreign = d.value, d.dirty, d.us, d.foreign
      reply[r - 4], reply[r - 3], reply[r - 2], reply[r - 1], reply[r] = run(d, true)
    end
  end
end

-- The server expires by its own clock and whole milliseconds: an absolute time in those is never early. A clock that is given moves
-- apart from the server's, so there only the length counts.
for _, s in pairs(states) do
  if s.dirty then
    if s.value == '' then
      call('DEL', s.key)
    elseif clock then
      call('SET', s.key, s.value, 'PXAT', string.format('%.0f', math.ceil((now + s.us) / 1000)))
    else
      call('SET', s.key, s.value, 'PX', string.format('%.0f', math.ceil(s.us / 1000) + 1))
    end
  end
end
return reply
