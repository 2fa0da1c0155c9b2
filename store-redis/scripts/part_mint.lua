-- Mints the revision of a write: max(floor + 1, the server's clock in microseconds). The clock moves on while a script
-- runs, so it is read once. The write stores the revision as the new floor, in full digits: a number that Lua turns
-- into text by itself keeps 14 of them.
local floor = redis.call('GET', KEYS[2])
local time = redis.call('TIME')
local revision = time[1] * 1000000 + time[2]
if floor and tonumber(floor) >= revision then
  revision = floor + 1
end
