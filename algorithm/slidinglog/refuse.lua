-- refuse sets retry: the time until enough units have expired for n to fit.
allowed = 0
local need = live
if n < max then need = live + n - max end
if need > 0 then
  if large and units < need then
--include seek.lua
    first, units, stamp =
      seek(seen or {hole = hole}, key, head, count, slots, first, TOO_LARGE, need, TOO_LARGE)
    need = 0
  end
  while not large and units < need and p + RECORD < last do
    need, p = need - units, p + RECORD
    units, stamp = unpack('>I6I6', cache, p)
  end
  if not units or units < need or stamp <= edge then return nil end
  retry = base + stamp + window - now
  if retry > newest + last_window - now then retry = newest + last_window - now end
end
