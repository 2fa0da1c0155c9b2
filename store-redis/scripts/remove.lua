-- KEYS: entry, of each item. Answers 1, or 0 if nothing was there.
local answers = {}
for i, entry in ipairs(KEYS) do
  answers[i] = redis.pcall('UNLINK', entry)
  if answers[i] == 1 then
    redis.pcall('PUBLISH', entry, '$DATABASE')
  end
end
return answers
