-- ARGV: expected value, value, ttl in ms. Answers its revision, or 0 if it does not apply.
local refused = no_revision()
for i = from, to do
  local applies, answer = matches(call('GET', KEYS[i]), ARGV[argument])
  if applies then
    answer = refused or call('SET', KEYS[i], ARGV[argument + 1], 'PX', ARGV[argument + 2])
    if not answer.err then
      answer = mint()
      changed[#changed + 1] = KEYS[i]
    end
  end
  answers[i - 1] = answer
  argument = argument + 3
end
