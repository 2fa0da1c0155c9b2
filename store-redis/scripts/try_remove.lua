-- KEYS: entry; ARGV: expected value; of each item. Answers 1 or 0.
local answers = {}
for i, entry in ipairs(KEYS) do
  local stored, answer = matching(entry, ARGV[i])
  if stored then
    answer = redis.pcall('DEL', entry)
    if answer == 1 then
      redis.pcall('PUBLISH', entry, '$DATABASE')
    end
  end
  answers[i] = answer
end
return answers
