-- One call does items of all kinds, as to call a script costs more than what most of ours do.
--
-- KEYS: the floor of revisions, and then the entry of each item. ARGV: for neighbours of one kind the name of their
-- operation, how many they are, and then the arguments of each. Answers a list of theirs.
local answers = {}

-- Nothing here may raise: what was done before it would be answered as an error too.
local call, KEYS, ARGV = redis.pcall, KEYS, ARGV

-- The entries whose change others are told of.
local changed = {}

-- The clock moves on while a script runs, so it is read once, for all items: microseconds, or why they cannot be had.
local now, no_clock
local function clock()
  if not now and not no_clock then
    local time = call('TIME')
    if time.err then
      no_clock = time
    else
      now = time[1] * 1000000 + time[2]
    end
  end
  return now, no_clock
end

local function in_ms(micros)
  return math.floor(micros / 1000)
end

-- A revision is max(the one before + 1, the server's clock in microseconds). The floor keeps the one before.
local revision, has_minted, refusal

-- Why no revision can be minted, or nothing; to be asked before a write that needs one.
local function no_revision()
  if not revision and not refusal then
    local now, no_clock = clock()
    local floor = call('GET', KEYS[1])
    local number = tonumber(floor or 0)
    if no_clock or type(floor) == 'table' then
      refusal = no_clock or floor
    elseif number and number < 9007199254740000 then
      revision = math.max(number, now - 1)
    else
      refusal = {err = 'CORRUPT a floor is a number'}
    end
  end
  return refusal
end

local function mint()
  revision, has_minted = revision + 1, true
  return revision
end

-- What is stored under these entries, read together, as to call a command costs more than what most of them do. `false`
-- stands for what has to be read by itself: it is not there, or cannot be read, or is alone.
local function together(from, to)
  return from < to and call('MGET', unpack(KEYS, from, to)) or {}
end

-- Whether what is stored, as `GET` says it, has the expected value, or else the answer of the item. A sliding entry keeps
-- its terms before its value, so it is never equal as a whole.
local function matches(stored, expected)
  if stored == expected then
    return true
  end
  if type(stored) == 'table' then
    return false, stored
  end
  return stored and string.byte(stored) == 126 and string.sub(stored, 28) == string.sub(expected, 2), 0
end

local following, argument = 2, 1
while ARGV[argument] do
  -- The places in KEYS of the entries of these neighbours; `argument` is that of the next argument.
  local operation, from, to = ARGV[argument], following, following + ARGV[argument + 1] - 1
  following, argument = to + 1, argument + 2
  $OPERATIONS
end

if has_minted and call('SET', KEYS[1], string.format('%.0f', revision)).err then
  for i, answer in ipairs(answers) do
    -- A revision: other numbers are 0 and 1.
    if type(answer) == 'number' and answer > 1 then
      answers[i] = {err = 'APPLIED and then refused'}
    end
  end
end
for _, entry in ipairs(changed) do
  call('PUBLISH', entry, '$DATABASE')
end
return answers
