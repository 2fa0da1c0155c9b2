-- Answers 1, or 0 if nothing was there.
for i = from, to do
  local answer = call('UNLINK', KEYS[i])
  if answer == 1 then
    changed[#changed + 1] = KEYS[i]
  end
  answers[i - 1] = answer
end
