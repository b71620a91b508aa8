-- Returns a·b ÷ m, rounded down, and the remainder. The arguments are integers below 2^45. If a
-- double cannot hold the product, a is processed in digits of 7 bits, so that no intermediate
-- result exceeds 2^53.
local function product(a, b, m)
  local whole = a * b
  if whole < 2 ^ 53 then
    local rest = whole % m
    return (whole - rest) / m, rest
  end
  local quotient, rest = 0, 0
  for shift = 42, 0, -7 do
    local x = rest * 128 + b * (math.floor(a / 2 ^ shift) % 128)
    rest = x % m
    quotient = quotient * 128 + (x - rest) / m
  end
  return quotient, rest
end
