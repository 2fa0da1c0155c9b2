-- KEYS: entry, floor. ARGV: expected value, value, ttl in ms. Answers the revision, or 0 if it does not apply.
redis.call('SET', KEYS[2], string.format('%.0f', revision))
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.pcall('PUBLISH', KEYS[1], '$DATABASE')
return revision
