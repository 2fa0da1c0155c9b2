-- ARGV: expected value. Answers 1 or 0.
local held, going, is_going = together(from, to), {}, {}
for i = from, to do
  local entry, stored, expected = KEYS[i], held[i - from + 1], ARGV[argument]
  local applies, answer = stored == expected, 1
  if not applies then
    applies, answer = matches(stored or redis.pcall('GET', entry), expected)
  end
  if applies then
    -- Of two that are to remove the same, the first does.
    answer = is_going[entry] and 0 or 1
    going[#going + 1] = answer == 1 and entry or nil
    is_going[entry] = true
  end
  answers[i - 1] = answer
  argument = argument + 1
end
if going[1] then
  local removed = redis.pcall('DEL', unpack(going))
  for i = from, to do
    if answers[i - 1] == 1 then
      if type(removed) == 'table' then
        answers[i - 1] = removed
      else
        redis.pcall('PUBLISH', KEYS[i], '$DATABASE')
      end
    end
  end
end
