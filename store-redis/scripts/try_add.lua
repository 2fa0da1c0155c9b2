-- KEYS: entry, floor; ARGV: value, ttl in ms; of each item. Answers its revision, or what is there and how many ms it
-- has left.
--
-- Two items of one floor may get the same revision: they are of different entries, as only one can add the same.
local floors = {}
for i = 2, #KEYS, 2 do
  floors[i / 2] = KEYS[i]
end
local held = together(floors)
local now_in_digits = digits(now)
local answers, raised = {}, {}
for i, floor in ipairs(floors) do
  local entry = KEYS[2 * i - 1]
  local revision, answer = mint(held[i] or redis.pcall('GET', floor))
  if revision then
    answer = redis.pcall('SET', entry, ARGV[2 * i - 1], 'NX', 'PX', ARGV[2 * i], 'GET')
    if not answer then
      answer = revision
      raised[#raised + 1] = floor
      raised[#raised + 1] = revision == now and now_in_digits or digits(revision)
    elseif type(answer) == 'string' then
      answer = {answer, redis.pcall('PTTL', entry)}
    end
  end
  answers[i] = answer
end
if raised[1] and redis.pcall('MSET', unpack(raised)).err then
  for i, answer in ipairs(answers) do
    if type(answer) == 'number' then
      answers[i] = {err = 'APPLIED and then refused'}
    end
  end
end
return answers
