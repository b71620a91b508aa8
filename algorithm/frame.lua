-- The frame that runs steps: reads the clock once, runs the step of each demand in order on a handle of its state,
-- and commits what the steps wrote.
--
-- KEYS   the states, each once
-- ARGV   one string a demand: now (7 bytes, in µs; 0 is the server's clock), index in KEYS (4), index of the step (1), op (1), n (6), at (7),
--        1 if the next demand is of the same group (1), then the args, 7 bytes each; all unsigned and big-endian
-- reply  one string, 29 bytes a demand: allowed (1 byte: 1, 0, or 2 for a corrupt state), then in 7 bytes each remaining,
--        RetryAfter and ResetAfter in µs, stamp
--
-- The demands of a group are all admitted or leave no trace; groups are independent. Every step reads what those before it
-- wrote; nothing reaches the server before all steps have run.
--
-- A handle s of a state has s.size, its bytes, 0 for no history, and s.tail, the bytes from s.from on (at least the last 2 KiB). Steps read
-- with range and write with patch, replace and keep; they change no field.

local call, unpack, sub = redis.call, struct.unpack, string.sub

local TAIL = 2048

local function load(key)
  local tail = redis.pcall('GETRANGE', key, '-2048', '-1')
  if tail.err then
    if sub(tail.err, 1, 9) ~= 'WRONGTYPE' then error(tail.err) end
    return {key = key, tail = '', from = 0, size = 0, foreign = true}
  end
  local size = #tail
  if size == TAIL then size = call('STRLEN', key) end
  return {key = key, tail = tail, from = size - #tail, size = size}
end

-- range returns n bytes from offset on, from 0.
local function range(s, offset, n)
  local i = offset - s.from
  if i >= 0 then return sub(s.tail, i + 1, i + n) end
  local bytes = call('GETRANGE', s.key, offset, offset + n - 1)
  if s.early then -- writes of this call before the tail
    for j = 1, #s.early, 2 do
      local at, new = s.early[j] - offset, s.early[j + 1]
      if at + #new > 0 and at < #bytes then
        local left = at > 0 and sub(bytes, 1, at) or ''
        bytes = left .. sub(new, #left - at + 1, #bytes - at) .. sub(bytes, at + #new + 1)
      end
    end
  end
  if offset + n > s.from then bytes = sub(bytes, 1, s.from - offset) .. sub(s.tail, 1, offset + n - s.from) end
  return bytes
end

-- patch writes bytes from offset on, over what is there and beyond the end.
local function patch(s, offset, bytes)
  local p = s.patches
  if not p then p = {} s.patches = p end
  p[#p + 1] = offset
  p[#p + 1] = bytes
  if s.single then return end -- nobody reads it again
  local i = offset - s.from
  if i >= 0 then
    s.tail = sub(s.tail, 1, i) .. bytes .. sub(s.tail, i + #bytes + 1)
    s.size = s.from + #s.tail
  else
    local early = s.early or {}
    early[#early + 1] = offset
    early[#early + 1] = bytes
    s.early = early
  end
end

-- replace makes bytes the whole state; none delete it.
local function replace(s, bytes)
  s.tail, s.from, s.size, s.whole, s.patches, s.early = bytes, 0, #bytes, true, nil, nil
end

-- keep says for how many µs from now on the state is needed. A state that was empty needs it; another one keeps what it had.
local function keep(s, us) s.keep = us end

local now, index, number, op, n, at, more = unpack('>I7I4I1I1I6I7I1', ARGV[1])
local clock = now == 0
if clock then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- The server expires by its own clock and whole milliseconds: an absolute time in those is never early. A clock that is given moves
-- apart from the server's, so there only the length counts.
local function commit(s)
  local unit, time
  if s.keep then
    if clock then
      unit, time = 'PXAT', string.format('%.0f', math.ceil((now + s.keep) / 1000))
    else
      unit, time = 'PX', string.format('%.0f', math.ceil(s.keep / 1000) + 1)
    end
  end
  if s.whole then
    if s.size == 0 then
      call('DEL', s.key)
    elseif unit then
      call('SET', s.key, s.tail, unit, time)
    else
      call('SET', s.key, s.tail, 'KEEPTTL')
    end
  end
  local p = s.patches
  if p then
    for i = 1, #p, 2 do call('SETRANGE', s.key, p[i], p[i + 1]) end
    if unit and not s.whole then call(clock and 'PEXPIREAT' or 'PEXPIRE', s.key, time) end
  end
end

--STEPS--

if #ARGV == 1 then
  local s = load(KEYS[1])
  s.single = true
  if not s.foreign then
    local allowed, remaining, retry, reset, stamp = step1(s, now, op, n, at, sub(ARGV[1], 28))
    if allowed then
      if s.whole or s.patches then commit(s) end
      return struct.pack('>I1I7I7I7I7', allowed, remaining, retry, reset, stamp)
    end
  elseif op == RESET then
    call('DEL', KEYS[1])
    return struct.pack('>I1I7I7I7I7', step1({key = '', tail = '', from = 0, size = 0}, now, op, n, at, sub(ARGV[1], 28)))
  end
  return struct.pack('>I1I7I7I7I7', 2, 0, 0, 0, 0)
end

--LIST--
local FIELDS = {'tail', 'from', 'size', 'foreign', 'whole', 'keep'}

local function copy(list)
  local c
  if list then
    c = {}
    for i = 1, #list do c[i] = list[i] end
  end
  return c
end

local function run(d, looking)
  local s, op, n, at = d.state, d.op, d.n, d.at
  local always = looking and op > LOOK
  if looking then op = LOOK end
  if always then n, at = 1, 0 end
  local allowed, remaining, retry, reset, stamp
  if not s.foreign then
    allowed, remaining, retry, reset, stamp = d.step(s, now, op, n, at, d.args)
  elseif op == RESET then
    s.foreign = nil
    replace(s, '')
  end
  if not allowed then
    if d.op ~= RESET then return 2, 0, 0, 0, 0 end
    -- To a Reset what is corrupt is empty.
    return d.step({key = '', tail = '', from = 0, size = 0}, now, RESET, n, at, d.args)
  end
  if always then allowed, retry = 1, 0 end
  return allowed, remaining, retry, reset, stamp
end

local states, reply, last = {}, {}, #ARGV
local first = 1
while first <= last do
  local group, i = {}, first - 1
  repeat
    i = i + 1
    local d = {args = sub(ARGV[i], 28)}
    local _
    _, index, number, d.op, d.n, d.at, more = unpack('>I7I4I1I1I6I7I1', ARGV[i])
    local s = states[index]
    if not s then
      s = load(KEYS[index])
      states[index] = s
    end
    d.state, d.step = s, steps[number]
    group[#group + 1] = d
  until more == 0

  local size, refused = #group, false
  if size > 1 then
    for j = 1, size do
      local d = group[j]
      local s = d.state
      for f = 1, #FIELDS do d[FIELDS[f]] = s[FIELDS[f]] end
      d.patches, d.early = copy(s.patches), copy(s.early)
    end
  end
  for j = 1, size do
    local allowed, remaining, retry, reset, stamp = run(group[j], false)
    if allowed ~= 1 then refused = true end
    reply[first + j - 1] = struct.pack('>I1I7I7I7I7', allowed, remaining, retry, reset, stamp)
  end
  if refused and size > 1 then
    for j = 1, size do
      local d = group[j]
      local s = d.state
      for f = 1, #FIELDS do s[FIELDS[f]] = d[FIELDS[f]] end
      s.patches, s.early = d.patches, d.early
      reply[first + j - 1] = struct.pack('>I1I7I7I7I7', run(d, true))
    end
  end
  first = first + size
end

for _, s in pairs(states) do
  if s.whole or s.patches then commit(s) end
end
return table.concat(reply)
