-- Part of many.lua where a call has several scripts: the steps, each defined by a function. If
-- that fails, so does each call of the step.
local steps = {}
local function define(script)
  local ok, step = protect(script)
  if ok then return step end
  return function() error(step, 0) end
end
