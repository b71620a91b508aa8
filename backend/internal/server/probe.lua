-- Runs each command that scripts call, on a key that no state has, and leaves nothing behind.
-- KEYS  the key
-- reply the name of what the server refused, a line feed and the server's words; or nothing

local values, library = table.unpack or unpack, rawget(_G, 'struct') -- Lua 5.4 has no unpack
if type(library) ~= 'table' then return 'library struct\nno such library' end
for _, command in ipairs({
  {'TIME'},
  {'GETRANGE', KEYS[1], '-1', '-1'},
  {'STRLEN', KEYS[1]},
  {'SET', KEYS[1], '', 'PXAT', '4102444800000'},
  {'SET', KEYS[1], '', 'PX', '1000'},
  {'SET', KEYS[1], '', 'KEEPTTL'},
  {'SETRANGE', KEYS[1], '0', 'x'},
  {'PEXPIREAT', KEYS[1], '4102444800000'},
  {'PEXPIRE', KEYS[1], '1000'},
  {'DEL', KEYS[1]},
  {'HSET', KEYS[1], 'x', 'x'},
  {'HGET', KEYS[1], 'x'},
  {'HSCAN', KEYS[1], '0'},
  {'HDEL', KEYS[1], 'x'},
}) do
  local reply = redis.pcall(values(command))
  if type(reply) == 'table' and reply.err then
    redis.pcall('DEL', KEYS[1])
    return command[1] .. '\n' .. reply.err
  end
end
return ''
