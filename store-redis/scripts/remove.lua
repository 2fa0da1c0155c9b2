-- KEYS: entry. Answers 1, or 0 if nothing was there.
if redis.call('UNLINK', KEYS[1]) == 0 then
  return 0
end
redis.pcall('PUBLISH', KEYS[1], '$DATABASE')
return 1
