-- KEYS: entry, floor. ARGV: value, first ttl in ms (0 for ever); for a sliding entry also how long it lives without a
-- read and how long at most (0 for no limit). Answers the revision.
local value = ARGV[1]
if ARGV[3] then
  local latest = 0
  if ARGV[4] ~= '0' then
    latest = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[4]
  end
  value = string.format('~%013.0f%013.0f', ARGV[3], latest) .. string.sub(value, 2)
end
redis.call('SET', KEYS[2], string.format('%.0f', revision))
if ARGV[2] == '0' then
  redis.call('SET', KEYS[1], value)
else
  redis.call('SET', KEYS[1], value, 'PX', ARGV[2])
end
redis.pcall('PUBLISH', KEYS[1], '$DATABASE')
return revision
