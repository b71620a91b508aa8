-- Part of many.lua: groups of several demands.

--include run.lua

-- decide_group decides the demands of a group together. Once one is refused, those after it are
-- only peeked at. Answers replace demands in group, and results are fields of demands: tables that
-- grow would cost more.
decide_group = function(group)
  local admitted = true
  if group.least then
    local granted
    for i = 1, #group do
      local d = group[i]
      if d.least then
        local r = run(d, PEEK, d.least, 0)
        granted = math.min(granted or d.n, math.max(d.least, r[2] or 0))
        d.peeked, admitted = r, admitted and r[1] == 1
      end
    end
    for i = 1, #group do
      local d = group[i]
      if d.least then d.n = granted end
    end
  end
  for i = 1, #group do
    if not admitted then break end
    local d = group[i]
    local r = run(d, d.op, d.n, d.at)
    if d.least and d.op == TAKE then r[5] = d.n end
    d.result, admitted = r, r[1] == 1
  end
  for i = 1, #group do
    if not admitted then break end
    local d = group[i]
    local r = d.result
    -- A longer state is corrupt; commit would find out after others of the group were written.
    if r[14] and not r[7] and call('STRLEN', d.key) > r[14] then d.result, admitted = {}, false end
  end
  for i = 1, #group do
    local d = group[i]
    local op, r = d.op, d.result
    if not admitted then
      -- None is recorded, and each is answered as a peek, which a refusal already is. For a reset a
      -- corrupt state counts as empty.
      local ask = op <= PEEK--[[ or op == HOLD and d.n > 0]]
      r = d.peeked or r and (not r[1] or op == PEEK or ask and r[1] == 0) and r
        or ask and run(d, PEEK, d.n, 0)
      if not r then
        r = run(d, PEEK, 1, 0--[[ - 1]])
        if r[1] then
          r[1], r[3] = 1, 0
        elseif op == RESET then
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
