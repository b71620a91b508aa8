-- Part of single.lua and run.lua: it sets answer, or returns from the function if the state is
-- corrupt.
if not allowed then return pack('>I6I7I7I7', CORRUPT, 0, 0, 0) end
if (whole or o1--[[ or
  head]]) and (allowed ~= 1 or op == PEEK) then remaining = remaining + WROTE end
if allowed ~= 1 then remaining = remaining + REFUSED end
local answer = pack('>I6I7I7I7', remaining, retry, reset, units)
