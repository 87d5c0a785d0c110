-- What every script begins with: its keys, the present, the rules, and how messages move.
-- Invariant: a message has a place in exactly one of pending, invisible, waiting and dead; and
-- whatever has a place has its payload in data, or in graves if it is dead.
--
-- Times are whole numbers: microseconds of the server's clock, or what ARGV[1] says the time is.
-- They are turned into text by `whole` only: Lua would round them.
local PENDING, INVISIBLE, DATA, META = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local DELAYED, AGES, WAITING, HEADS = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local DEAD, GRAVES, KNOWN, KNOWN_UNTIL = KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local STATE, RULES, GONE = KEYS[13], KEYS[14], KEYS[15]
local call, pcall = redis.call, redis.pcall

local UNIT, now = 1000000, 0
if ARGV[1] == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  UNIT, now = 1000000000, tonumber(ARGV[1])
end

-- Moved at most by one call: others must get their turn too.
local MANY = 1000
-- What is kept of a message beside its payload.
local FIELDS = {
  ':enqueued', ':count', ':handle', ':attrs', ':turn', ':reply_to', ':error', ':hold', ':group',
  ':due',
}

-- Says which key is not what it has to be, if there is one.
local function name_wrong_type()
  local types = {
    'list', 'zset', 'hash', 'hash', 'zset', 'zset', 'zset', 'hash', 'zset', 'hash', 'hash', 'zset',
    'hash', 'hash', 'zset',
  }
  for at = 1, #KEYS do
    local found = call('TYPE', KEYS[at]).ok
    if found ~= types[at] and found ~= 'none' then
      local what = KEYS[at] .. ' is a ' .. found .. ', not a ' .. types[at]
      return redis.error_reply('WRONGTYPE ' .. what)
    end
  end
end

-- How many there were at first; and whether there is any of the keys that most mailboxes do
-- without.
local pending_at_first, invisible_at_first, data_at_first, meta_at_first, ages_at_first
local has_others = true
-- Whether a key may have been emptied and made again.
local is_made_again = false

-- What is wrong if a key is not what it has to be. Looked at before anything is changed: a script
-- that fails half way is not undone. A length is asked for, because that costs less than a type.
local function wrong_type()
  local pending, invisible = pcall('LLEN', PENDING), pcall('ZCARD', INVISIBLE)
  local data, meta = pcall('HLEN', DATA), pcall('HLEN', META)
  local ages, state, gone = pcall('ZCARD', AGES), pcall('HLEN', STATE), pcall('ZCARD', GONE)
  has_others = call('EXISTS', DELAYED, WAITING, HEADS, DEAD, GRAVES, KNOWN, KNOWN_UNTIL, RULES) > 0
  pending_at_first, invisible_at_first = pending, invisible
  data_at_first, meta_at_first, ages_at_first = data, meta, ages
  local is_number = type(pending) == 'number' and type(invisible) == 'number'
    and type(data) == 'number' and type(meta) == 'number' and type(ages) == 'number'
    and type(state) == 'number' and type(gone) == 'number'
  if has_others or not is_number then
    local wrong = name_wrong_type()
    for _, length in ipairs({ pending, invisible, data, meta, ages, state, gone }) do
      -- Something else than a type, for example a command that is not allowed.
      wrong = wrong or type(length) ~= 'number' and length
    end
    return wrong
  end
end

local function whole(number)
  return string.format('%.0f', number)
end

-- As scores have it: seconds.
local function score(time)
  return time / UNIT
end

local function time_of(seconds)
  return math.floor(tonumber(seconds) * UNIT + 0.5)
end

-- The rules: the mailbox's own, or those that whoever asks has for mailboxes without. Empty text
-- stands for these.
local rules = {
  max_in_flight = 1048576, replay_window = 300 * UNIT, dedup_capacity = 1048576,
}
local function set_rules(size, in_flight, attempts, window, capacity, late, ready_age, ready_count,
  factor, dead_age, dead_count)
  local function age(text)
    return text ~= '' and text and tonumber(text) * (UNIT / 1000000000) or nil
  end
  rules = {
    max_size = tonumber(size), max_in_flight = tonumber(in_flight),
    max_attempts = tonumber(attempts), replay_window = age(window),
    dedup_capacity = tonumber(capacity), late_settle = late == 'until_redelivered',
    ready_age = age(ready_age), ready_count = tonumber(ready_count),
    in_flight_factor = tonumber(factor), dead_age = age(dead_age),
    dead_count = tonumber(dead_count),
  }
end

-- Reads them. Gives what is wrong if they cannot be read.
local function read_rules()
  local names = has_others and {
    'max_size', 'max_in_flight', 'max_attempts', 'replay_window', 'dedup_capacity', 'late_settle',
    'ready_age', 'ready_count', 'in_flight_factor', 'dead_age', 'dead_count',
  }
  local own = names and call('HMGET', RULES, unpack(names))
  if not own or not own[2] then
    local six = '([^,]*),([^,]*),([^,]*),([^,]*),([^,]*),([^,]*),'
    local five = '([^,]*),([^,]*),([^,]*),([^,]*),([^,]*),'
    return ARGV[3] ~= '' and set_rules(string.match(ARGV[3], '^' .. six .. five))
  end
  -- A mailbox has these in any case.
  local needed = { [2] = true, [4] = true, [5] = true }
  for at = 1, #names do
    local text = own[at] or ''
    local is_number = at == 6 or string.match(text, '^%d+$') or text == '' and not needed[at]
    if not is_number then
      return redis.error_reply('ERR ' .. RULES .. ' is damaged: ' .. names[at] .. ' is no number')
    end
  end
  set_rules(unpack(own, 1, #names))
end

-- Numbers that say who was first: `count` of them, the last of which is given.
local function stamps(count, name)
  local last = redis.pcall('HINCRBY', STATE, 'stamp', count)
  if type(last) == 'number' and last < 9e15 and last >= count then
    if last == count then
      -- What tells this mailbox from a later one of the same name.
      call('HSETNX', STATE, 'born', name or whole(now))
    end
    return last
  end
  local what = type(last) == 'table' and last.err or 'overflow'
  if not string.match(what, 'integer') and not string.match(what, 'overflow') then
    error(last)
  end
  -- Somebody has written something else there: the time is later than all there were.
  last = now + count
  call('HSET', STATE, 'stamp', whole(last))
  return last
end

-- What cannot be counted is no reason to stop half way.
local function total(what, by)
  if by > 0 then
    redis.pcall('HINCRBY', STATE, what, by)
  end
end

local function live()
  return call('LLEN', PENDING) + call('ZCARD', INVISIBLE) + call('ZCARD', WAITING)
end

-- Shared with others, who let whole keys go when nobody has used them for so long. A thousandth
-- less is as good, and need not be told to replicas each time: until then only keys that are new
-- are looked after. `what`: 'sent' or 'received', if it was.
local function keep_alive(what)
  local enough = tonumber(ARGV[2]) * 999
  -- Others who acknowledge the last of our own messages leave something beside it.
  local is_left_over = data_at_first == 0
    and (meta_at_first > 0 or pending_at_first > 0 or invisible_at_first > 0)
  if enough == 0 then
    local lives = call('TTL', DATA) >= 0 or call('TTL', STATE) >= 0
    if lives or is_left_over then
      -- Whoever said so before us: a mailbox that is in use must not go meanwhile.
      for at = 1, 13 do
        call('PERSIST', KEYS[at])
      end
    end
    return
  end
  -- Others refresh what is shared, all at once, and may have another time for it, shorter or
  -- longer: then all keys have to be given ours.
  local function is_ours(left)
    return left >= enough and left <= ARGV[2] * 1000
  end
  local is_enough = not is_made_again and not is_left_over and is_ours(call('PTTL', STATE))
  if is_enough and data_at_first > 0 then
    local left = call('PTTL', DATA)
    if left == -2 then
      left = call('PTTL', META)
    end
    is_enough = is_ours(left) or left == -2
  end
  if is_enough then
    local function start(key, at_first)
      if at_first == 0 then
        call('EXPIRE', key, ARGV[2])
      end
    end
    if what == 'sent' then
      start(PENDING, pending_at_first)
      start(DATA, data_at_first)
      start(META, meta_at_first)
      start(AGES, ages_at_first)
    elseif what == 'received' then
      start(INVISIBLE, invisible_at_first)
      start(META, meta_at_first)
    end
    return
  end
  for _, key in ipairs({ PENDING, INVISIBLE, DATA, META, DELAYED }) do
    call('EXPIRE', key, ARGV[2])
  end
  local window = math.ceil((rules.replay_window or 0) / UNIT)
  call('EXPIRE', KNOWN, math.max(ARGV[2], window))
  call('EXPIRE', KNOWN_UNTIL, math.max(ARGV[2], window))
  -- The order of those who wait behind others, who stay, is told by these.
  local keep = call('EXISTS', WAITING) == 1
  for _, key in ipairs({ AGES, STATE }) do
    if keep then
      call('PERSIST', key)
    else
      call('EXPIRE', key, ARGV[2])
    end
  end
end

-- What few calls need is made when the first of it is: a function that nobody calls costs time too.
local fill_seldom
local seldom = setmetatable({}, {
  __index = function(made, name)
    is_made_again = true
    fill_seldom()
    return rawget(made, name)
  end,
})

-- Puts back in line whatever is due, in the order in which it became so.
local function bring_back()
  if invisible_at_first == 0 then
    return
  end
  local due = call('ZRANGEBYSCORE', INVISIBLE, '-inf', score(now), 'WITHSCORES', 'LIMIT', '0', MANY)
  local count = #due / 2
  if count == 0 then
    return
  end
  local ids, turns = {}, {}
  for at = 1, count do
    ids[at] = due[2 * at - 1]
    turns[at] = ids[at] .. ':turn'
  end
  turns = call('HMGET', META, unpack(turns))
  local order, handles, delays = {}, {}, {}
  for at = 1, count do
    local tie = turns[at] and string.match(turns[at], '(%d+)$')
    order[at] = { tonumber(due[2 * at]), tonumber(tie or '') or 0, ids[at] }
    handles[at] = ids[at] .. ':handle'
    if turns[at] and string.sub(turns[at], 1, 1) == 'd' then
      delays[#delays + 1] = ids[at] .. ':turn'
    end
  end
  table.sort(order, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    if a[2] ~= b[2] then return a[2] < b[2] end
    return a[3] < b[3]
  end)
  for at = 1, count do
    ids[at] = order[at][3]
  end
  is_made_again = true
  call('ZREM', INVISIBLE, unpack(ids))
  call('LPUSH', PENDING, unpack(ids))
  call('ZREMRANGEBYSCORE', DELAYED, '-inf', score(now))
  if not rules.late_settle then
    call('HDEL', META, unpack(handles))
  end
  if #delays > 0 then
    call('HDEL', META, unpack(delays))
  end
end

-- Retention, if there are rules for it.
local function retain()
  if rules.ready_age or rules.ready_count or rules.dead_age or rules.dead_count then
    seldom.retain()
  end
end

-- The same for those who only look: without rules of retention nothing is changed.
local function retain_now()
  if rules.ready_age or rules.ready_count or rules.dead_age or rules.dead_count then
    bring_back()
    seldom.retain()
    seldom.live_alike()
  end
end
