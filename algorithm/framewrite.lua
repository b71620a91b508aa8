  -- The server expires by its own clock and whole milliseconds: an absolute time in those is never early. A clock that is given moves
  -- apart from the server's, so there only the length counts.
  if us then
    if clock then
      us = string.format('%.0f', math.ceil((now + us) / 1000))
    else
      us = string.format('%.0f', math.ceil(us / 1000) + 1)
    end
  end
  if not whole then
    if us then call(clock and 'PEXPIREAT' or 'PEXPIRE', key, us) end
  elseif whole == '' then
    call('DEL', key)
  elseif us then
    call('SET', key, whole, clock and 'PXAT' or 'PX', us)
  else
    call('SET', key, whole, 'KEEPTTL')
  end
  local length
  if o1 then length = call('SETRANGE', key, o1, b1) end
  if o2 then length = call('SETRANGE', key, o2, b2) end
  if o3 then length = call('SETRANGE', key, o3, b3) end
