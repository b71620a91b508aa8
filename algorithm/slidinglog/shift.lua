-- shift writes the new base, with what is given back if there is any.
local bytes = pack('>I7I7I4', exponent * SPAN_EXPONENT + last_window, base + BASE_BIAS, expiry)
if o3 then
  b3 = b3 .. bytes
else
  o3, b3 = length - (large and LARGE_SPAN or SPAN), bytes
end
if not o1 then o1, b1, o3, b3 = o3, b3, nil, nil end
