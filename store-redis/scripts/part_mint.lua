-- The clock moves on while a script runs, so it is read once, for all items.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- The revision of a write, max(floor + 1, the server's clock in microseconds), or nothing and the answer of the item.
local function mint(floor)
  local last = redis.pcall('GET', floor)
  if not last then
    return now
  end
  if type(last) == 'table' then
    return nil, last
  end
  local number = tonumber(last)
  if not number then
    return nil, {err = 'CORRUPT a floor is a number'}
  end
  if number < now then
    return now
  end
  return number + 1
end

-- Stores a revision as the new floor; answers an error if that was refused. All its digits are written out: a number
-- that Lua makes text of by itself keeps 14 of them.
local function raise(floor, revision)
  local raised = redis.pcall('SET', floor, string.format('%.0f', revision))
  if raised.err then
    return raised
  end
end
