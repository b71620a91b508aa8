-- The step of Bucket. args: Max, the Window in µs and, unless they are the defaults, the debt and
-- the lead in µs. An amount is a number of units with a part of one, in units of 1/Window.
local TAKE, FORCE, RESET = 0, 2, 3
-- A state: units missing when it was written, the part of a unit, the Max and the Window of the
-- limit that wrote it, the time
local SIZE = 40
local UNITS, SHORTEST, LONGEST, LAST = 2 ^ 40, 1000, 31622400000000, 2 ^ 52
local DEBT, MISSING = 2 ^ 50, 2 ^ 52 -- the most that is missing: µs until it has come back, units

-- Returns (a·b + c) ÷ m, rounded down, and the remainder. The arguments are integers: a is below
-- 2^53, b and m are below 2^45, and c is below 2^46. If a double cannot hold the sum, a is
-- processed in digits of 7 bits, so that no intermediate result exceeds 2^53, unless the quotient
-- does.
local function product(a, b, c, m)
  local whole = a * b + c
  if whole < 2 ^ 53 then
    local rest = whole % m
    return (whole - rest) / m, rest
  end
  local quotient, rest = 0, 0
  for shift = a < 2 ^ 21 and 14 or 49, 0, -7 do
    local x = rest * 128 + b * (math.floor(a / 2 ^ shift) % 128)
    rest = x % m
    quotient = quotient * 128 + (x - rest) / m
  end
  c = c + rest
  rest = c % m
  return quotient + (c - rest) / m, rest
end

-- Returns the sum of two amounts of a limit whose Window is span.
local function sum(units, part, back, rest, span)
  units, part = units + back, part + rest
  if part >= span then return units + 1, part - span end
  return units, part
end

-- Returns an amount, or the most that may be missing with a debt if it is more.
local function bounded(units, part, debt, max, window)
  local most, rest = product(debt, max, 0, window)
  if most >= MISSING then most, rest = MISSING, 0 end
  if units > most or (units == most and part > rest) then return most, rest end
  return units, part
end

-- Returns an amount in a state of a limit of most units in length µs, or if it is more, what comes
-- back within the debt of args at the faster of the rates of both limits.
local function kept(units, part, most, length, max, window, args, pos)
  local debt = pos + 14 < #args and struct.unpack('>I7', args, pos + 14) or DEBT
  local least, rest = bounded(MISSING, 0, debt, most, length)
  if most ~= max or length ~= window then
    local own = bounded(MISSING, 0, debt, max, window)
    if own > least then least, rest = bounded(own, 0, DEBT, most, length) end
  end
  if units > least or (units == least and part > rest) then return least, rest end
  return units, part
end

local function step(key, tail, now, op, n, at, args, pos)
  local max, window = struct.unpack('>I7I7', args, pos)
  if op == RESET then
    return 1, max, 0, 0, now, nil, #tail > 0 and '' or nil
  end
  local units, part, written, write = 0, 0, now, false
  local rate, span = max, window -- at which it comes back
  if #tail > 0 then
    if #tail ~= SIZE then return nil end
    local most, length
    units, part, most, length, written = struct.unpack('>I8I8I8I8I8', tail)
    if most < 1 or most > UNITS or length < SHORTEST or length > LONGEST or part >= length
      or written >= LAST then
      return nil
    end
    local over = units > most or (units == most and part > 0)
    if over then
      local least, rest = bounded(units, part, DEBT, most, length)
      if least ~= units or rest ~= part then return nil end
    end
    if over or most ~= max or length ~= window then -- as if it had been written with this debt
      units, part = kept(units, part, most, length, max, window, args, pos)
    end
    if now > written then
      local back, rest = product(now - written, most, 0, length)
      units, part, written = units - back, part - rest, now
      if part < 0 then units, part = units - 1, part + length end
      if units < 0 then units, part = 0, 0 end
    end
    if most ~= max or length ~= window then
      local new_units, new_part = units, product(part, window, length - 1, length)
      if new_part == window then new_units, new_part = units + 1, 0 end
      local least, rest = kept(new_units, new_part, max, window, max, window, args, pos)
      local debt = pos + 14 < #args and struct.unpack('>I7', args, pos + 14)
      if least == new_units and rest == new_part or not debt or debt == DEBT then
        units, part, write = least, rest, new_units + new_part > 0
      else -- more than the debt: the state stays that of the other limit
        rate, span = most, length
      end
    end
  end

  local back, rest = 0, 0 -- what comes back from now until written
  if written - now > span then -- the clock was ahead
    written, write = now, true
  elseif written > now then
    back, rest = product(written - now, rate, 0, span)
  end

  local allowed, retry = 1, 0
  local missing, over = sum(units, part, back, rest, span)
  local lead = 0
  if pos + 21 < #args and op ~= FORCE then -- what comes back in the time of the lead is not free
    lead = struct.unpack('>I7', args, pos + 21)
    local least, least_part = product(lead, rate, 0, span)
    if least >= max then least, least_part = max, 0 end
    if missing < least or (missing == least and over < least_part) then
      missing, over = least, least_part
    end
  end
  local after = missing + n
  local fits = after < max or (after == max and over == 0)
  if op == FORCE or (op == TAKE and fits) then
    if now + lead > written then
      back, rest = product(now + lead - written, rate, 0, span)
      units, part, written = units - back, part - rest, now + lead
      if part < 0 then units, part = units - 1, part + span end
      if units < 0 then units, part = 0, 0 end
      back, rest = product(lead, rate, 0, span)
    end
    units, write = units + n, true
    if not fits then units, part = kept(units, part, rate, span, max, window, args, pos) end
    missing, over = sum(units, part, back, rest, span)
  elseif not fits then
    allowed, retry = 0, product(after - max, span, over + rate - 1, rate)
  end

  local remaining = max - missing
  if over > 0 then remaining = remaining - 1 end
  if remaining < 0 then remaining = 0 end
  local reset = product(missing, span, over + rate - 1, rate)
  local us, state = nil, nil
  if write then
    state = ''
    if reset > 0 then
      us, state = reset, struct.pack('>I8I8I8I8I8', units, part, rate, span, written)
    end
  end
  return allowed, remaining, retry, reset, now, us, state
end
