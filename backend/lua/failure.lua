-- Part of many.lua: makes the answer of a group of an error, which is in answer. left is the
-- number of equal takes that are not decided.
if type(answer) == 'table' then answer = answer.err end
local text = tostring(answer)
-- Some errors are about the server and not about a group: it lets no script begin to write. The
-- client library has to see them, since it may know a server that does.
local code = string.match(text, '^%u+')
if not dirty and not wrote
  and (code == 'OOM' or code == 'READONLY' or code == 'MISCONF' or code == 'NOREPLICAS') then
  return {err = text}
end
text = sub(text, 1, 200)
answer = pack('>I6I7I7I7', wrote and FAILED + WROTE or FAILED, #text, 0, 0) .. text
if left then answer = pack('>I7', left) .. answer end
answer = answer .. string.rep(pack('>I6I7I7I7', FAILED, 0, 0, 0), #group - 1)
