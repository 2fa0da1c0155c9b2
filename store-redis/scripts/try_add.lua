-- KEYS: entry, floor; ARGV: value, ttl in ms; of each item. Answers its revision, or what is there and how many ms it
-- has left.
local answers = {}
for i = 1, #KEYS, 2 do
  local revision, answer = mint(KEYS[i + 1])
  if revision then
    answer = redis.pcall('SET', KEYS[i], ARGV[i], 'NX', 'PX', ARGV[i + 1], 'GET')
    if not answer then
      answer = revision
      if raise(KEYS[i + 1], revision) then
        answer = {err = 'APPLIED and then refused'}
      end
    elseif type(answer) == 'string' then
      answer = {answer, redis.pcall('PTTL', KEYS[i])}
    end
  end
  answers[#answers + 1] = answer
end
return answers
