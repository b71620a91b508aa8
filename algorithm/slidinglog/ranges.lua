-- ranges defines the functions by which sweep reads and writes records. more receives the further
-- ranges to write, each as an offset and its bytes.
local call = redis.call
local function read(i, k) -- k records from i on
  local slot = (oldest + i) % slots
  if k == 0 then return '' end
  if slot + k <= slots then
    return call('GETRANGE', key, slot * RECORD, (slot + k) * RECORD - 1)
  end
  return call('GETRANGE', key, slot * RECORD, slots * RECORD - 1)
    .. call('GETRANGE', key, 0, (slot + k - slots) * RECORD - 1)
end
more = {}
local function write(start, bytes, room) -- from byte start of room, and around
  local split = room - start % room
  if bytes == '' then return end
  more[#more + 1], more[#more + 2] = start % room, string.sub(bytes, 1, split)
  if #bytes > split then more[#more + 1], more[#more + 2] = 0, string.sub(bytes, split + 1) end
end
local function zeros(k) return string.rep(string.char(0), k * RECORD) end
