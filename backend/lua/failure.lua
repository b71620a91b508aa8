-- Part of many.lua: turns the error in answer into the answer of its group. left is the number of
-- equal takes that are not decided, or nil.
if type(answer) == 'table' then answer = answer.err end
local text = tostring(answer)
-- After some errors the server lets no script begin to write. They concern all groups, so they are
-- the reply to the whole call: the client library sees them and may use another server.
local code = string.match(text, '^%u+')
if not dirty and not wrote
  and (code == 'OOM' or code == 'READONLY' or code == 'MISCONF' or code == 'NOREPLICAS') then
  return {err = text}
end
text = sub(text, 1, 200)
answer = pack('>I6I7I7I7', wrote and FAILED + WROTE or FAILED, #text, 0, 0) .. text
if left then answer = pack('>I7', left) .. answer end
answer = answer .. string.rep(pack('>I6I7I7I7', FAILED, 0, 0, 0), #group - 1)
