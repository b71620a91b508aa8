-- filter removes the empty records from some.
local filled, first, at = {}, 1, string.find(some, NO_UNITS, 1, true)
while at do
  local start = at - (at - 1) % RECORD -- of the record that has these bytes
  if at == start then filled[#filled + 1], first = string.sub(some, first, at - 1), at + RECORD end
  at = string.find(some, NO_UNITS, start + RECORD, true)
end
filled[#filled + 1] = string.sub(some, first)
some = table.concat(filled)
