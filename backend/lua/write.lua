-- Part of one.lua, single.lua and run.lua: it writes what a step returned, and returns from the
-- function if the state turns out to be corrupt. It sets wrote when it has written something. An
-- error after that begins with AFTER_WRITE. What a step with holds returned for its hash, from head
-- on, is written before its state: so that a settlement that fails halfway and is repeated records
-- nothing twice.
--[[
local call = call
if wrote or head and (gone or whole or us) then
  local first = call
  call = function(...) -- an error after a write begins with AFTER_WRITE
    if not wrote then return first(...) end
    local reply = pcall(...)
    if type(reply) == 'table' and reply.err then error(AFTER_WRITE .. reply.err, 0) end
    return reply
  end
end
if head == '' then
  call('DEL', holds)
  wrote = true
elseif head then
  local reply
  if gone then
    if gone == true then call('DEL', holds) else call('HDEL', holds, values(gone)) end
    wrote = true
  end
  if hold then
    call('HSET', holds, '', head, id, hold)
  else
    if id then
      call('HDEL', holds, id)
      wrote = true
    end
    reply = (wrote and pcall or call)('HSET', holds, '', head)
  end
  wrote = true
  if ttl and type(reply) ~= 'table' then
    if clock then
      reply = pcall('PEXPIREAT', holds, math.ceil((now + ttl) / 1000))
    else
      reply = pcall('PEXPIRE', holds, math.ceil(ttl / 1000) + 1)
    end
  end
  if reply and type(reply) == 'table' then error(AFTER_WRITE .. reply.err, 0) end
end
--]]
if whole or o1 then
  if whole or us then
    -- The server expires keys by its own clock, in whole milliseconds. An absolute time, rounded
    -- up, is never early. If now was passed in, it is not from the server's clock, and the time to
    -- live is relative.
    if us then
      us = clock and now + us + 999 or us + 1999
      us = (us - us % 1000) / 1000
    end
    if not whole then
      call(clock and 'PEXPIREAT' or 'PEXPIRE', key, us)
    elseif whole == '' then
      call('DEL', key)
    elseif us then
      call('SET', key, whole, clock and 'PXAT' or 'PX', us)
    else
      call('SET', key, whole, 'KEEPTTL')
    end
    wrote = true
  end
  if o1 then
    local length = (wrote and pcall or call)('SETRANGE', key, o1, b1)
    wrote = true
    if o2 and type(length) ~= 'table' then length = pcall('SETRANGE', key, o2, b2) end
    if o3 and type(length) ~= 'table' then length = pcall('SETRANGE', key, o3, b3) end
    if length ~= size then
      if type(length) == 'table' then error(AFTER_WRITE .. length.err, 0) end
      -- not the size that the state records
      if size then return pack('>I6I7I7I7', CORRUPT, 0, 0, 0) end
    end
  end
end
