-- Whether a live entry has the expected value: what is stored, or nothing and the answer of the item. A sliding entry
-- keeps its terms before its value, so it is never equal as a whole.
local function matching(entry, expected)
  local stored = redis.pcall('GET', entry)
  if stored == expected then
    return stored
  end
  if not stored then
    return nil, 0
  end
  if type(stored) == 'table' then
    return nil, stored
  end
  if string.byte(stored) == 126 and string.sub(stored, 28) == string.sub(expected, 2) then
    return stored
  end
  return nil, 0
end
