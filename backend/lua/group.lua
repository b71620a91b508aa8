-- Part of many.lua: groups of several demands.

--include run.lua

-- decide_group decides the demands of a group together. Answers replace demands in group, and
-- results are fields of demands: tables that grow would cost more.
decide_group = function(group)
  local admitted = true
  if group.least then
    local granted
    for i = 1, #group do
      local d = group[i]
      if d.least then
        local free = math.max(d.least, run(d, PEEK, d.least, 0)[2] or 0)
        granted = math.min(granted or d.n, free)
      end
    end
    for i = 1, #group do
      local d = group[i]
      if d.least then d.n = granted end
    end
  end
  for i = 1, #group do
    local d = group[i]
    local r = run(d, d.op, d.n, d.at)
    -- A longer state is corrupt; commit would find out after others of the group were written.
    if r[14] and not r[7] and call('STRLEN', d.key) > r[14] then r = {} end
    d.result = r
    if d.least and d.op == TAKE then r[5] = d.n end
    admitted = admitted and r[1] == 1
  end
  for i = 1, #group do
    local d = group[i]
    local r = d.result
    if not admitted and r[1] then
      -- None is recorded, and each is answered as a peek. For a reset a corrupt state counts as
      -- empty.
      if d.op <= PEEK--[[ or d.op == HOLD and d.n > 0]] then
        r = run(d, PEEK, d.n, 0)
      else
        r = run(d, PEEK, 1, 0--[[ - 1]])
        if r[1] then
          r[1], r[3] = 1, 0
        elseif d.op == RESET then
          r = {d.step(d.key, '', now, RESET, 1, 0, d.arg, 28)}
--[[
          r[7], r[15] = nil, nil
--]]
        end
      end
    end
    group[i] = commit(d, r, admitted)
  end
  return table.concat(group)
end
