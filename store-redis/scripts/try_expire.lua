-- KEYS: entry. ARGV: expected value, ttl in ms. Answers 1 or 0.
if stored == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
  -- It slides no more.
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 1
