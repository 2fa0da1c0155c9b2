-- What so many names hold, read together, as to call a command costs more than most of what ours do. Nothing stands for
-- what has to be read by itself: it is free, cannot be read, or is alone.
local function together(names)
  return names[2] and redis.pcall('MGET', unpack(names)) or {}
end
