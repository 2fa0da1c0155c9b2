-- ARGV: value, first ttl in ms (0 for ever), how many ms it lives without a read (0 if reads do not matter), how many at
-- most (0 for no limit). Answers its revision.
local refused = no_revision()
for i = from, to do
  local value, ttl, idle, at_most = unpack(ARGV, argument, argument + 3)
  local answer = refused
  if not answer then
    if idle ~= '0' then
      local latest = at_most == '0' and 0 or in_ms(clock()) + at_most
      value = string.format('~%013.0f%013.0f', idle, latest) .. string.sub(value, 2)
    end
    if ttl == '0' then
      answer = call('SET', KEYS[i], value)
    else
      answer = call('SET', KEYS[i], value, 'PX', ttl)
    end
    if not answer.err then
      answer = mint()
      changed[#changed + 1] = KEYS[i]
    end
  end
  answers[i - 1] = answer
  argument = argument + 4
end
