-- KEYS: entry. Answers what is there and its time left in ms (-1 for ever), or nothing. A read moves the end of a
-- sliding entry: after the '~' come 13 digits of how long it lives without a read, and 13 of when it ends at the latest
-- (0 for never), both in ms.
local stored = redis.call('GET', KEYS[1])
if not stored then
  return false
end
if string.byte(stored) == 126 then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local ends = now + string.sub(stored, 2, 14)
  local latest = tonumber(string.sub(stored, 15, 27))
  if latest > 0 and latest < ends then
    ends = latest
  end
  -- In its last millisecond there is nothing to move, and an end that is not ahead would remove it.
  if ends > now then
    redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', ends))
  end
end
return {stored, redis.call('PTTL', KEYS[1])}
