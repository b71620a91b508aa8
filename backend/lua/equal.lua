-- Part of many.lua: equal takes.

--include run.lua

-- decide_equal decides d.left equal takes, and counts down what is left. One take is decided alone.
-- Then one step decides the sum of all that still fit. Its result is used only if it is what the
-- last of them would get alone; after a change of the clock or of the resolution it may differ, and
-- the next take is decided alone.
decide_equal = function(d, reply)
  while d.left > 0 do
    local r, count = run(d, TAKE, d.n, 0), d.left
    local answer, allowed = commit(d, r, true)
    if allowed == 1 then
      count = 1
      local fit = math.min(d.left - 1, math.floor(r[2] / d.n))
      if fit > 0 then
        local s = run(d, TAKE, fit * d.n, 0)
        if s[1] == 1 and s[2] == r[2] - fit * d.n and s[4] == r[4] then
          answer, count = commit(d, s, true), fit + 1
        end
      end
    end
    reply[#reply + 1] = pack('>I7', count) .. answer
    d.left = d.left - count
    dirty, wrote = dirty or wrote, false -- the takes that are left have written nothing
  end
end
