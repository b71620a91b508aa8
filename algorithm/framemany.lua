-- The frame of a call with several demands: reads the clock once, runs the step of each demand in order, and writes what the steps
-- of a group return once all of them are admitted.
--
-- KEYS   the states, each once
-- ARGV   one string a demand, all integers unsigned and big-endian: now (7 bytes, in µs; 0 is the server's clock), 8·n + op (7), at (7; of a
--        take, how many equal takes follow), index in KEYS (4), index of the step (1), 1 if the next demand is of the same group (1), then the
--        args, 7 bytes each
-- reply  one string, 27 bytes a demand: remaining (6 bytes), RetryAfter and ResetAfter in µs, stamp (7 each), with 2^44 added to remaining
--        if it is refused, 2^46 if it records nothing and wrote all the same, and 2^45 if its state is corrupt; one admitted demand alone
--        has no RetryAfter.
--        For a take that equal ones follow: one or more times a number of takes (7 bytes) and the 27 bytes of the last of them.
--        Remaining falls by n from one admitted take to the next; the refused ones are all alike.
--
-- The demands of a group are all admitted or leave no trace; groups are independent, and see what those before them wrote. A take that
-- equal ones follow is a group by itself.

local call, pcall, unpack, pack, sub = redis.call, redis.pcall, struct.unpack, struct.pack, string.sub
local TAKE, LOOK, RESET = 0, 1, 4
local REFUSED, CORRUPT, WROTE = 2 ^ 44, 2 ^ 45, 2 ^ 46

--STEPS--
--LIST--

local now = unpack('>I7', ARGV[1])
local clock = now == 0
if clock then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- run returns what the step of d returns, for op instead of its own; nothing if the state is corrupt.
local function run(d, op, n, at)
  local tail = pcall('GETRANGE', d.key, '-160', '-1')
  if not tail.err then return {d.step(d.key, tail, now, op, n, at, d.arg, 28)} end
  if sub(tail.err, 1, 9) ~= 'WRONGTYPE' then error(tail.err) end
  if op ~= RESET then return {} end
  local r = {d.step(d.key, '', now, op, n, at, d.arg, 28)}
  r[7] = ''
  return r
end

-- look returns what a Look at d returns.
local function look(d)
  local r
  if d.op <= LOOK then return run(d, LOOK, d.n, 0) end
  r = run(d, LOOK, 1, 0)
  if r[1] then
    r[1], r[3] = 1, 0
  elseif d.op == RESET then -- to which what is corrupt is empty
    r = {d.step(d.key, '', now, RESET, 1, 0, d.arg, 28)}
  end
  return r
end

-- commit writes what the step that returned r wants written. If the state turns out to be corrupt, r is what a step returns then.
local function commit(key, r)
  local us, whole, o1, b1, o2, b2, o3, b3, size = r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14]
  if not whole and not o1 then return end
--WRITE--
  if size and length ~= size then r[1] = nil end
end

local reply, group = {}, {}
for i = 1, #ARGV do
  local arg, tail = ARGV[i], nil
  local _, n, at, index, number, more = unpack('>I7I7I7I4I1I1', arg)
  local op, key = n % 8, KEYS[index]
  n = (n - op) / 8
  if more == 0 and #group == 0 and (op ~= TAKE or at == 0) then tail = pcall('GETRANGE', key, '-160', '-1') end
  if tail and not tail.err then
    -- A demand by itself, as most are: without the tables that others need.
    local allowed, remaining, retry, reset, stamp, us, whole, o1, b1, o2, b2, o3, b3, size = steps[number](key, tail, now, op, n, at, arg, 28)
    if whole or o1 then
--WRITE--
      if size and length ~= size then allowed = nil end
      if allowed ~= 1 or op == LOOK then remaining = remaining + WROTE end
    end
    if not allowed then
      remaining, retry, reset, stamp = CORRUPT, 0, 0, 0
    elseif allowed ~= 1 then
      remaining = remaining + REFUSED
    end
    reply[#reply + 1] = pack('>I6I7I7I7', remaining, retry, reset, stamp)
  else
    local d = {arg = arg, key = key, step = steps[number], op = op, n = n, at = at}
    group[#group + 1] = d
    if more == 0 then
      local results, admitted, counts = {}, true, nil
      if d.op == TAKE and d.at > 0 then
        counts = {}
        local left = d.at + 1
        while left > 0 do
          -- One take is decided alone, then as many as still fit in one step. That step counts only if it answers what the last of them
          -- alone would get, which a clock or a resolution that has just changed may prevent; then the next one is decided alone.
          local r, count = run(d, TAKE, d.n, 0), left
          commit(d.key, r)
          if r[1] == 1 then
            count = 1
            local fit = math.min(left - 1, math.floor(r[2] / d.n))
            if fit > 0 then
              local s = run(d, TAKE, fit * d.n, 0)
              if s[1] == 1 and s[2] == r[2] - fit * d.n and s[4] == r[4] and s[5] == r[5] then
                commit(d.key, s)
                r, count = s, fit + 1
              end
            end
          end
          left = left - count
          results[#results + 1], counts[#counts + 1] = r, count
        end
      else
        for j = 1, #group do
          d = group[j]
          local r = run(d, d.op, d.n, d.at)
          -- What commit would find out when others of the group are written.
          if #group > 1 and r[14] and not r[7] and call('STRLEN', d.key) > r[14] then r = {} end
          results[j] = r
          admitted = admitted and r[1] == 1
        end
      end
      for j = 1, #results do
        local r = results[j]
        if counts then
          reply[#reply + 1] = pack('>I7', counts[j])
        else
          d = group[j]
          if r[1] and not admitted and #group > 1 then r = look(d) end -- a look may not see that a state is corrupt
          commit(d.key, r)
        end
        local remaining = r[2] or 0
        if not r[1] then
          remaining = CORRUPT
        else
          if r[1] ~= 1 then remaining = remaining + REFUSED end
          if (r[7] or r[8]) and (r[1] ~= 1 or not admitted or d.op == LOOK) then remaining = remaining + WROTE end
        end
        reply[#reply + 1] = pack('>I6I7I7I7', remaining, r[3] or 0, r[4] or 0, r[5] or 0)
      end
      group = {}
    end
  end
end
return table.concat(reply)
