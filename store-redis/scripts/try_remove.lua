-- KEYS: entry; ARGV: expected value; of each item. Answers 1 or 0.
local held = together(KEYS)
local answers, gone = {}, {}
for i, entry in ipairs(KEYS) do
  local answer = 1
  if held[i] ~= ARGV[i] then
    local applies, otherwise = matches(held[i] or redis.pcall('GET', entry), ARGV[i])
    answer = applies and 1 or otherwise
  end
  if answer == 1 then
    gone[#gone + 1] = entry
  end
  answers[i] = answer
end
if gone[1] then
  local removed = redis.pcall('DEL', unpack(gone))
  -- Nothing expires while a script runs, so fewer were removed only if two items were to remove the same.
  local has_doubles, before = removed ~= #gone, {}
  for i, entry in ipairs(KEYS) do
    if answers[i] == 1 then
      if type(removed) == 'table' then
        answers[i] = removed
      elseif before[entry] then
        answers[i] = 0
      else
        redis.pcall('PUBLISH', entry, '$DATABASE')
        before[entry] = has_doubles or nil
      end
    end
  end
end
return answers
