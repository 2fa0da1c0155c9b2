-- ARGV: value, ttl in ms. Answers its revision, or what is there and how many ms it has left.
local refused = no_revision()
for i = from, to do
  local answer = refused
  if not answer then
    answer = call('SET', KEYS[i], ARGV[argument], 'NX', 'PX', ARGV[argument + 1], 'GET')
    if not answer then
      answer = mint()
    elseif type(answer) == 'string' then
      answer = {answer, call('PTTL', KEYS[i])}
    end
  end
  answers[i - 1] = answer
  argument = argument + 2
end
