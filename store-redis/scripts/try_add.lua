-- KEYS: entry, floor. ARGV: value, ttl in ms. Answers the revision, or what is there and its time left in ms.
local held = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2], 'GET')
if held then
  return {held, redis.call('PTTL', KEYS[1])}
end
redis.call('SET', KEYS[2], string.format('%.0f', revision))
return revision
