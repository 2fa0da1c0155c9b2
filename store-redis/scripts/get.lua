-- Answers what is there and how many ms it has left (-1 for ever), or nothing.
--
-- A read moves the end of a sliding entry: after its '~' come 13 digits of how long it lives without a read, and 13 of
-- when it ends at the latest (0 for never), both in ms.
for i = from, to do
  local answer = redis.pcall('GET', KEYS[i])
  if type(answer) == 'string' then
    local refused
    if string.byte(answer) == 126 then
      local now = now_in_ms()
      local ends = now + string.sub(answer, 2, 14)
      local latest = tonumber(string.sub(answer, 15, 27))
      if latest > 0 and latest < ends then
        ends = latest
      end
      -- In its last millisecond there is nothing to move, and an end that is not ahead would remove it.
      if ends > now then
        local moved = redis.pcall('PEXPIREAT', KEYS[i], string.format('%.0f', ends))
        refused = type(moved) == 'table' and moved
      end
    end
    answer = refused or {answer, redis.pcall('PTTL', KEYS[i])}
  end
  answers[i - 1] = answer
end
