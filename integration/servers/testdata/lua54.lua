-- Runs scripts in Lua 5.4 for lua54.go. Each message is an array of strings in RESP. Input is a
-- script: its source, the number of its keys, the keys and the arguments. Output is "call" and a
-- command, to which the input has the reply, and at last "reply" and the reply of the script.

local input, output = io.stdin, io.stdout

-- read returns what comes next in RESP, as scripts see it.
local function read()
  local line = input:read('l')
  if not line then os.exit(0) end
  local kind, rest = line:sub(1, 1), line:sub(2, -2)
  if kind == '-' then return {err = rest} end
  local n = math.tointeger(tonumber(rest))
  if kind == ':' then return n end
  if n < 0 then return false end
  if kind == '$' then return input:read(n + 2):sub(1, n) end
  local array = {}
  for i = 1, n do array[i] = read() end
  return array
end

local function send(...)
  local words = {...}
  for i = 1, #words do
    local word = words[i]
    if math.type(word) then
      word = string.format(math.type(word) == 'integer' and '%d' or '%.17g', word)
    end
    words[i] = '$' .. #word .. '\r\n' .. word .. '\r\n'
  end
  output:write('*', #words, '\r\n', table.concat(words))
  output:flush()
end

-- reply returns a value that a script has returned, in RESP.
local function reply(value)
  if math.type(value) then return string.format(':%d\r\n', math.floor(value)) end
  if type(value) == 'string' then return '$' .. #value .. '\r\n' .. value .. '\r\n' end
  if type(value) ~= 'table' then return '$-1\r\n' end
  if value.err then return '-' .. value.err:gsub('[\r\n]', ' ') .. '\r\n' end
  local parts = {}
  for i = 1, #value do parts[i] = reply(value[i]) end
  return '*' .. #value .. '\r\n' .. table.concat(parts)
end

local redis = {}
function redis.pcall(...)
  send('call', ...)
  return read()
end
function redis.call(...)
  local value = redis.pcall(...)
  if type(value) == 'table' and value.err then error(value.err, 0) end
  return value
end

-- The library struct. Its numbers are floats, as those of the library in C are.
local struct = {}
function struct.pack(format, ...)
  local values = {...}
  for i = 1, #values do
    if math.type(values[i]) == 'float' then values[i] = math.tointeger(values[i] // 1) end
  end
  return string.pack(format, table.unpack(values))
end
function struct.unpack(...)
  local values = {string.unpack(...)}
  for i = 1, #values - 1 do values[i] = values[i] + 0.0 end
  return table.unpack(values)
end

-- What a script may use; there is no unpack.
local shared = {redis = redis, struct = struct}
for _, name in ipairs({'string', 'table', 'math', 'tonumber', 'tostring', 'type', 'ipairs', 'pairs',
  'error', 'pcall', 'select', 'rawget'}) do
  shared[name] = _G[name]
end

while true do
  local message, keys, args = read(), {}, {}
  table.move(message, 3, 2 + message[2], 1, keys)
  table.move(message, 3 + message[2], #message, 1, args)
  local globals = {KEYS = keys, ARGV = args}
  for name, value in pairs(shared) do globals[name] = value end
  globals._G = globals
  setmetatable(globals, {__index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. name .. "'", 2)
  end})
  local script, err = load(message[1], '@user_script', 't', globals)
  if script then
    local ok, value = pcall(script)
    if ok then
      send('reply', reply(value))
    else
      if type(value) == 'table' then value = value.err end
      send('reply', reply({err = 'ERR Error running script: ' .. value}))
    end
  else
    send('reply', reply({err = 'ERR Error compiling script (new function): ' .. err}))
  end
end
