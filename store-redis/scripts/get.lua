-- Answers what is there and how many ms it has left (-1 for ever), or nothing.

-- A read moves the end of a sliding entry: after its '~' come 13 digits of how long it lives without a read, and 13 of
-- when it ends at the latest (0 for never), both in ms. Answers why it cannot be moved.
local function slide(entry, stored)
  local idle, latest = tonumber(string.sub(stored, 2, 14)), tonumber(string.sub(stored, 15, 27))
  if not idle or not latest then
    return {err = 'CORRUPT a sliding entry has terms'}
  end
  local now, no_clock = clock()
  if no_clock then
    return no_clock
  end
  local ends = in_ms(now) + idle
  if latest > 0 and latest < ends then
    ends = latest
  end
  -- In its last millisecond there is nothing to move, and an end that is not ahead would remove it.
  if ends > in_ms(now) then
    local moved = call('PEXPIREAT', entry, string.format('%.0f', ends))
    return type(moved) == 'table' and moved
  end
end

for i = from, to do
  local answer = call('GET', KEYS[i])
  if type(answer) == 'string' then
    local refused = string.byte(answer) == 126 and slide(KEYS[i], answer)
    answer = refused or {answer, call('PTTL', KEYS[i])}
  end
  answers[i - 1] = answer
end
