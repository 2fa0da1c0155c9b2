-- KEYS: entry; ARGV: expected value, ttl in ms; of each item. Answers 1 or 0.
local held = together(KEYS)
local answers = {}
for i, entry in ipairs(KEYS) do
  local expected, ttl = ARGV[2 * i - 1], ARGV[2 * i]
  local stored = held[i] or redis.pcall('GET', entry)
  local applies, answer = matches(stored, expected)
  if stored == expected then
    answer = redis.pcall('PEXPIRE', entry, ttl)
  elseif applies then
    -- It slides no more.
    answer = redis.pcall('SET', entry, expected, 'PX', ttl)
    if not answer.err then
      answer = 1
    end
  end
  answers[i] = answer
end
return answers
