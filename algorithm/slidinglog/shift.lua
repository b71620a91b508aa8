-- shift writes the new base, together with the units that are given back, if any.
local bytes = pack('>I7I7I4', exponent * SPAN_EXPONENT + last_window, base + BASE_BIAS, expiry)
if o3 then
  b3 = b3 .. bytes
else
  o3, b3 = length - (large and LARGE_SPAN or SPAN), bytes
end
if not o1 then o1, b1, o3, b3 = o3, b3, nil, nil end
