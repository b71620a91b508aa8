-- Runs demands one after the other on one state. CheckLua puts two programs of package backend/lua
-- in place of ONE and MANY: of calls with one demand, and with several equal ones.
--
-- KEYS   those of the programs
-- ARGV   three a demand: 1 or 2, the program; what becomes of the state before; the argument of the
--        program. The second begins with "+" if the state stays, with "-" if it is deleted, and
--        with "=" before a state that replaces it for this demand only.
-- reply  six strings a demand, each after its length in 4 bytes: the error, the program's reply,
--        the state, the us that the step returned, the time to live that was stored in ms, and the
--        last command that wrote, or "!" and a command that the step must not run

local server, seen = redis, {}
local redis = {}
for name, value in pairs(server) do redis[name] = value end

local READS = {GETRANGE = true, STRLEN = true}
local HASH_READS = {HGET = true, HSCAN = true}
local DAY = 86400000 -- ms

-- watch returns a function that calls f, and notes what it is called with.
local function watch(f)
  return function(...)
    local name, key, value, option, number = ...
    name = string.upper(name)
    local reads = READS[name] or HASH_READS[name]
    if seen.inside and not (READS[name] and key == KEYS[1]) and not (HASHES and reads) then
      seen.strange = name
    elseif not reads and name ~= 'TIME' then
      seen.wrote = name
      if key == KEYS[1] then
        if name == 'DEL' then seen.life = '' end
        if name == 'PEXPIRE' then seen.life = value end
        if name == 'SET' and option == 'PX' then seen.life = number end
      end
    end
    return f(...)
  end
end
redis.call, redis.pcall = watch(server.call), watch(server.pcall)

local function left(...)
  seen.inside, seen.us = false, (select(6, ...))
  return ...
end

-- conformance_step returns step, and notes when it runs and the us that it returns.
local function conformance_step(step)
  return function(...)
    seen.inside = true
    return left(step(...))
  end
end

local function one(KEYS, ARGV)
--ONE--
end

local function many(KEYS, ARGV)
--MANY--
end

local function text(number)
  return type(number) == 'number' and string.format('%.17g', number) or tostring(number or '')
end

local reply = {}
for i = 1, #ARGV, 3 do
  local program, state, arg = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local how, before = string.sub(state, 1, 1), nil
  if how == '-' then
    server.call('DEL', KEYS[1])
    if KEYS[2] then server.call('DEL', KEYS[2]) end
  elseif how == '=' then
    before = server.call('GET', KEYS[1]) or ''
    server.call('SET', KEYS[1], string.sub(state, 2))
  end
  seen = {}
  local ok, result = pcall(program == '1' and one or many, KEYS, {arg})
  local failure = ''
  if type(result) == 'table' then ok, result = false, result.err end
  if not ok then failure, result = tostring(result), '' end
  local after = not HASHES and server.call('GET', KEYS[1]) or ''
  for _, field in ipairs({failure, result, after, text(seen.us), text(seen.life),
    seen.strange and '!' .. seen.strange or seen.wrote or ''}) do
    reply[#reply + 1] = struct.pack('>I4', #field) .. field
  end
  if before == '' then
    server.call('DEL', KEYS[1])
  elseif before then
    server.call('SET', KEYS[1], before)
  end
  for _, key in ipairs(KEYS) do
    server.call('PEXPIRE', key, DAY) -- the clock of the demands is not the server's
  end
end
return table.concat(reply)
