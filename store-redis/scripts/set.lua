-- KEYS: entry, floor; ARGV: value, first ttl in ms (0 for ever), how many ms it lives without a read (0 if reads do not
-- matter), how many at most (0 for no limit); of each item. Answers its revision.
local answers = {}
for i = 1, #KEYS / 2 do
  local entry, floor = KEYS[2 * i - 1], KEYS[2 * i]
  local value, ttl, idle, at_most = ARGV[4 * i - 3], ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i]
  if idle ~= '0' then
    local latest = 0
    if at_most ~= '0' then
      latest = time[1] * 1000 + math.floor(time[2] / 1000) + at_most
    end
    value = string.format('~%013.0f%013.0f', idle, latest) .. string.sub(value, 2)
  end
  local revision, answer = mint(redis.pcall('GET', floor))
  if revision then
    answer = raise(floor, revision)
  end
  if revision and not answer then
    if ttl == '0' then
      answer = redis.pcall('SET', entry, value)
    else
      answer = redis.pcall('SET', entry, value, 'PX', ttl)
    end
    if not answer.err then
      redis.pcall('PUBLISH', entry, '$DATABASE')
      answer = revision
    end
  end
  answers[i] = answer
end
return answers
