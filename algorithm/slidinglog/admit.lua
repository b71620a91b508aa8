-- admit sets what is written into the trailer, and the results. If same is set, the bytes from the
-- span on do not change. us is the new time to live in µs, or nil. It is a quarter of a Window
-- longer than needed, so that most admissions need not change it. It is shortened if it is longer
-- than that, since the Window was reduced or the clock has stepped back.
if count == 0 then base, expiry = new_stamp, 0 end
local stay = count - drop -- records that are kept, of which a merge replaces the last
if stay >= MAX_RECORDS then merge = true end
if empties and stay > 0 and unpack('>I6', tail, ending + 1) == 0 then merge = true end
used = held + n
if used > MAX_SUM then n, used = MAX_SUM - held, MAX_SUM end
live = live + n
local remaining, reset, us = max - live, new_stamp + window - now, nil
if remaining < 0 then remaining = 0 end
local same = not shifted and window == last_window and exponent == new_exponent
local span = new_exponent * SPAN_EXPONENT + window
newest = new_stamp - base
local spare = expiry * EXPIRY_UNIT - newest - window
if spare < 0 or spare > window / 4 + 2 * EXPIRY_UNIT then
  expiry = math.ceil((newest + window + window / 4) / EXPIRY_UNIT) + 1
  us, same = base + expiry * EXPIRY_UNIT - now, false
end
