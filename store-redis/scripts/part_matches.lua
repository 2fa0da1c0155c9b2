-- Whether what is stored, as `GET` says it, has the expected value, or else the answer of the item. A sliding entry keeps
-- its terms before its value, so it is never equal as a whole.
local function matches(stored, expected)
  if stored == expected then
    return true
  end
  if type(stored) == 'table' then
    return false, stored
  end
  return stored and string.byte(stored) == 126 and string.sub(stored, 28) == string.sub(expected, 2), 0
end
