-- Part of many.lua where a call has several scripts: define defines a step when a demand first
-- needs it, so that the others cost nothing. If that fails, so does each call of the step.
local steps = {}
local function define(number)
  local script, suffix
--SCRIPTS--
  local ok, step = protect(script)
  if not ok then
    local err = step
    step = function() error(err, 0) end
  end
  steps[number] = step
--[[
  if suffix then held[step] = suffix end
--]]
  return step
end
