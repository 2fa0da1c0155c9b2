-- ARGV: expected value. Answers 1 or 0.
local held, going = together(from, to), {}
for i = from, to do
  local stored, expected = held[i - from + 1], ARGV[argument]
  local applies, answer = stored == expected, 1
  if not applies then
    applies, answer = matches(stored or call('GET', KEYS[i]), expected)
  end
  if applies then
    answer = 1
    going[#going + 1] = KEYS[i]
  end
  answers[i - 1] = answer
  argument = argument + 1
end
if going[1] then
  local removed, before = call('DEL', unpack(going)), {}
  -- Nothing expires while a script runs, so fewer were removed only if two items were to remove the same.
  local has_doubles = removed ~= #going
  for i = from, to do
    if answers[i - 1] == 1 then
      if type(removed) == 'table' then
        answers[i - 1] = removed
      elseif has_doubles and before[KEYS[i]] then
        answers[i - 1] = 0
      else
        changed[#changed + 1] = KEYS[i]
        if has_doubles then
          before[KEYS[i]] = true
        end
      end
    end
  end
end
