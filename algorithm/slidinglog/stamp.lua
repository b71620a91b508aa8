-- stamp sets t, the instant of the decision, and new_stamp and new_exponent, those of a record that
-- is admitted. If merge is set, that record is merged with the newest. The instant is not before
-- the earliest time at which the newest record may have been written. If that time is more than a
-- window ahead, the clock has stepped back, and all stamps are shifted. The key then expires too
-- late, so the expiry becomes 0: the next admission sets the time to live.
local t, new_stamp, new_exponent, merge, shifted = now, now, 0, nil, nil
if newest > now then
  local back = newest - (2 ^ exponent - 1) - now -- by which the clock has stepped back, or more
  if back > window then
    base, newest, expiry, shifted = base - back, newest - back, 0, true
  elseif back > 0 then
    t, new_stamp = now + back, now + back
  end
end
if next_arg <= #args then
  local resolution, _ = unpack('>I7', args, next_arg)
  new_stamp = t + (resolution - t % resolution) % resolution
  _, new_exponent = math.frexp(resolution - 1)
  if new_exponent > MAX_EXPONENT then new_exponent = MAX_EXPONENT end
end
if newest >= new_stamp and count > 0 then
  new_stamp, merge = newest, true
  if exponent > new_exponent then new_exponent = exponent end
end
