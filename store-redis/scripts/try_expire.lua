-- ARGV: expected value, ttl in ms. Answers 1 or 0.
local held = together(from, to)
for i = from, to do
  local expected, ttl = ARGV[argument], ARGV[argument + 1]
  local stored = held[i - from + 1] or call('GET', KEYS[i])
  local applies, answer = matches(stored, expected)
  if stored == expected then
    answer = call('PEXPIRE', KEYS[i], ttl)
  elseif applies then
    -- It slides no more.
    answer = call('SET', KEYS[i], expected, 'PX', ttl)
    answer = answer.err and answer or 1
  end
  answers[i - 1] = answer
  argument = argument + 2
end
