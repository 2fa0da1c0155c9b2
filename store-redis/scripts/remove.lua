-- Answers 1, or 0 if nothing was there.
for i = from, to do
  local answer = redis.pcall('UNLINK', KEYS[i])
  if answer == 1 then
    redis.pcall('PUBLISH', KEYS[i], '$DATABASE')
  end
  answers[i - 1] = answer
end
