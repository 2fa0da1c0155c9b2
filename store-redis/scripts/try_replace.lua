-- KEYS: entry, floor; ARGV: expected value, value, ttl in ms; of each item. Answers its revision, or 0 if it does not
-- apply.
local answers = {}
for i = 1, #KEYS / 2 do
  local entry, floor = KEYS[2 * i - 1], KEYS[2 * i]
  local applies, answer = matches(redis.pcall('GET', entry), ARGV[3 * i - 2])
  local revision
  if applies then
    revision, answer = mint(redis.pcall('GET', floor))
  end
  if revision then
    answer = raise(floor, revision)
  end
  if revision and not answer then
    answer = redis.pcall('SET', entry, ARGV[3 * i - 1], 'PX', ARGV[3 * i])
    if not answer.err then
      redis.pcall('PUBLISH', entry, '$DATABASE')
      answer = revision
    end
  end
  answers[i] = answer
end
return answers
