-- Part of equal.lua and group.lua: run and commit, the two halves of a decision.

-- run runs the step of d with op, n and at instead of d's own. It returns the results in a table,
-- which is empty if the value is not a string. It reads the state into d.tail, unless it has done
-- so since commit wrote the state.
run = function(d, op, n, at)
--[[
  local holds = held[d.step] and d.key .. held[d.step]
--]]
  local tail = d.tail or --[[holds or ]]pcall('GETRANGE', d.key, '-160', '-1')
  d.tail = tail
  if not tail.err then return {d.step(d.key, tail, now, op, n, at, d.arg, 28)} end
  if sub(tail.err, 1, 9) ~= 'WRONGTYPE' then error(tail.err, 0) end
  if op ~= RESET then return {} end
  local r = {d.step(d.key, '', now, op, n, at, d.arg, 28)}
  r[7] = ''
  return r
end

-- commit writes what run returned for d, r. It returns the answer to d, and 1 if d is admitted.
-- recorded is whether the group is recorded; if not, r is the result of a peek.
commit = function(d, r, recorded)
  local key, op = d.key, recorded and d.op or PEEK
  d.tail = nil
  local allowed, remaining, retry, reset, units, us, whole, o1, b1, o2, b2, o3, b3, size--[[,
  head, ttl, id, hold, gone, rest]] =
    values(r, 1, 14--[[ + 6]])
--[[
  local holds = head and d.key .. held[d.step]
--]]
--include answer.lua
--include write.lua
--[[
  if rest then
    d.step = rest
    return commit(d, run(d, op, d.n, 0), true)
  end
--]]
  return answer, allowed
end
