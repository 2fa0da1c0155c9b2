-- Goes on only if the live entry has the expected value, which is ARGV[1]. A sliding entry keeps its expiry before its
-- value, so it is never equal as a whole.
local stored = redis.call('GET', KEYS[1])
if stored ~= ARGV[1] then
  if not stored or string.byte(stored) ~= 126 or string.sub(stored, 28) ~= string.sub(ARGV[1], 2) then
    return 0
  end
end
