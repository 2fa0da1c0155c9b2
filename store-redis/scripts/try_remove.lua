-- KEYS: entry. ARGV: expected value. Answers 1 or 0.
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', KEYS[1], '$DATABASE')
return 1
