-- The step of Bucket. args: Max and the Window in µs. A time is in µs and a part of a µs, in units
-- of 1/Max µs.
local TAKE, FORCE, RESET = 0, 2, 3
-- A state: when the bucket is full, the part of a µs, the Max that it is for, the time of the last
-- admission
local SIZE = 32
local UNITS, LAST, DEBT = 2 ^ 40, 2 ^ 52, 2 ^ 50

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

local function step(key, tail, now, op, n, at, args, pos)
  local max, window = struct.unpack('>I7I7', args, pos)
  if op == RESET then
    return 1, max, 0, 0, now, nil, #tail > 0 and '' or nil
  end
  local full, part, written = 0, 0, 0
  if #tail > 0 then
    if #tail ~= SIZE then return nil end
    local most
    full, part, most, written = struct.unpack('>I8I8I8I8', tail)
    if most < 1 or most > UNITS or part >= most or written >= LAST or full > written + DEBT then
      return nil
    end
    if most ~= max and part > 0 then full, part = full + 1, 0 end
  end

  local write = false
  if written - now > window then -- the clock was ahead
    full, written, write = math.max(0, full - (written - now)), now, true
  end
  if full < now then full, part = now, 0 end

  local cost, costpart = product(n, window, max)
  if cost >= DEBT then cost, costpart = DEBT, 0 end
  local later, laterpart = full + cost, part + costpart
  if laterpart >= max then later, laterpart = later + 1, laterpart - max end

  local allowed, retry = 1, 0
  local fits = later < now + window or (later == now + window and laterpart == 0)
  if op == FORCE or (op == TAKE and fits) then
    full, part = later, laterpart
    if full >= now + DEBT then full, part = now + DEBT, 0 end
    written, write = math.max(now, written), true
  elseif not fits then
    allowed, retry = 0, later + (laterpart > 0 and 1 or 0) - window - now
  end

  local remaining, left = 0, window - (full - now)
  if left > 0 then
    local rest
    remaining, rest = product(left, max, window)
    if part > rest then remaining = remaining - math.ceil((part - rest) / window) end
  end
  local reset = full + (part > 0 and 1 or 0) - now
  local us, state = nil, nil
  if write then
    state = ''
    if reset > 0 then us, state = reset, struct.pack('>I8I8I8I8', full, part, max, written) end
  end
  return allowed, remaining, retry, reset, now, us, state
end
