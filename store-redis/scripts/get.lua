-- KEYS: entry, of each item. Answers what is there and how many ms it has left (-1 for ever), or nothing.
--
-- A read moves the end of a sliding entry: after its '~' come 13 digits of how long it lives without a read, and 13 of
-- when it ends at the latest (0 for never), both in ms.
local answers = {}
local time
for i, entry in ipairs(KEYS) do
  local answer = redis.pcall('GET', entry)
  if type(answer) == 'string' then
    local refused
    if string.byte(answer) == 126 then
      time = time or redis.call('TIME')
      local now = time[1] * 1000 + math.floor(time[2] / 1000)
      local ends = now + string.sub(answer, 2, 14)
      local latest = tonumber(string.sub(answer, 15, 27))
      if latest > 0 and latest < ends then
        ends = latest
      end
      -- In its last millisecond there is nothing to move, and an end that is not ahead would remove it.
      if ends > now then
        local moved = redis.pcall('PEXPIREAT', entry, string.format('%.0f', ends))
        refused = type(moved) == 'table' and moved
      end
    end
    answer = refused or {answer, redis.pcall('PTTL', entry)}
  end
  answers[i] = answer
end
return answers
