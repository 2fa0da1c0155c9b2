-- The clock moves on while a script runs, so it is read once, for all items.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- The revision of a write, max(floor + 1, the server's clock in microseconds), or nothing and the answer of the item. The
-- floor is as `GET` says it.
local function mint(floor)
  if not floor then
    return now
  end
  if type(floor) == 'table' then
    return nil, floor
  end
  local number = tonumber(floor)
  if not number then
    return nil, {err = 'CORRUPT a floor is a number'}
  end
  if number < now then
    return now
  end
  return number + 1
end

-- A revision in all its digits: a number that Lua makes text of by itself keeps 14 of them.
local function digits(revision)
  return string.format('%.0f', revision)
end

-- Stores a revision as the new floor; answers an error if that was refused.
local function raise(floor, revision)
  local raised = redis.pcall('SET', floor, digits(revision))
  if raised.err then
    return raised
  end
end
