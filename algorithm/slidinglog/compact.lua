-- compact sets what rewrite needs for a state that gets no new record and whose record gone has
-- become empty.
local stay, from, total, room, us = count - 1, head, count, true, nil
local slot, new_stamp = from + stay, t
local span, drop = exponent * SPAN_EXPONENT + last_window, 0
n, newest = unpack('>I6', tail, ending + 1), newest - base
