-- Part of many.lua: equal takes.

--include run.lua

-- decide_equal decides d.left equal takes, and counts down what is left. One take is decided alone.
-- Then one step decides the sum of all that still fit. Its result is used only if it is what the
-- last of them would get alone; after a change of the clock or of the resolution it may differ, and
-- the next take is decided alone. If ResetAfter grows with each take by the same time, one part
-- has it; else each take has a part, with the ResetAfter that the step returns for a smaller sum.
-- These times differ by 1 µs at most, so they are equal if their sum is a multiple of their number.
decide_equal = function(d, reply)
  while d.left > 0 do
    local r, count = run(d, TAKE, d.n, 0), d.left
    local answer, allowed = commit(d, r, true)
    if allowed == 1 then
      count = 1
      local fit = math.min(d.left - 1, math.floor(r[2] / d.n))
      if fit > 0 then
        local s = run(d, TAKE, fit * d.n, 0)
        local grown = s[1] == 1 and s[4] - r[4]
        if grown and grown >= 0 and s[2] == r[2] - fit * d.n and s[5] == r[5] then
          local each = grown % fit > 0 and {answer}
          if each then
            local step, key, tail, n, left, arg = d.step, d.key, d.tail, d.n, r[2], d.arg
            for i = 1, fit - 1 do
              local _, _, _, reset = step(key, tail, now, TAKE, i * n, 0, arg, 28)
              each[i + 1] = pack('>I6I7I7I7', left - i * n, 0, reset, 0)
            end
          else
            s[3] = grown / fit
          end
          answer, allowed = commit(d, s, true)
          if each and allowed == 1 then
            each[fit + 1] = answer
            answer = table.concat(each, pack('>I7', 1))
            d.left = d.left - fit
          else
            count = fit + 1
          end
        end
      end
    end
    reply[#reply + 1] = pack('>I7', count) .. answer
    d.left = d.left - count
    dirty, wrote = dirty or wrote, false -- the takes that are left have written nothing
  end
end
