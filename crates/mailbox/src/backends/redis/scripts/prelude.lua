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
local TYPES = {
  'list', 'zset', 'hash', 'hash', 'zset', 'zset', 'zset', 'hash', 'zset', 'hash', 'hash', 'zset',
  'hash', 'hash', 'zset',
}
local call = redis.call

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
  ':enqueued', ':reply_to', ':count', ':handle', ':attrs', ':turn', ':error', ':group', ':due',
  ':hold',
}

-- What is wrong if a key is not what it has to be. Looked at before anything is changed: a script
-- that fails half way is not undone.
local function wrong_type()
  for at = 1, #KEYS do
    local found = call('TYPE', KEYS[at]).ok
    if found ~= TYPES[at] and found ~= 'none' then
      local what = KEYS[at] .. ' is a ' .. found .. ', not a ' .. TYPES[at]
      return redis.error_reply('WRONGTYPE ' .. what)
    end
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

local RULE = {
  'max_size', 'max_in_flight', 'max_attempts', 'replay_window', 'dedup_capacity', 'late_settle',
  'ready_age', 'ready_count', 'in_flight_factor', 'dead_age', 'dead_count',
}
-- A mailbox has these in any case.
local NEEDED = { [2] = true, [4] = true, [5] = true }

-- The rules: the mailbox's own, or those that whoever asks has for mailboxes without. Gives what is
-- wrong if they cannot be read.
local rules
local function read_rules()
  local own = call('HMGET', RULES, unpack(RULE))
  if not own[2] then
    own = {}
    for text in string.gmatch(ARGV[3], '([^,]*),') do
      own[#own + 1] = text
    end
  else
    for at = 1, #RULE do
      local text = own[at] or ''
      local is_number = at == 6 or string.match(text, '^%d+$') or text == '' and not NEEDED[at]
      if not is_number then
        return redis.error_reply('ERR ' .. RULES .. ' is damaged: ' .. RULE[at] .. ' is no number')
      end
    end
  end
  local function age(text)
    text = tonumber(text)
    return text and text * (UNIT / 1000000000)
  end
  rules = {
    max_size = tonumber(own[1]), max_in_flight = tonumber(own[2]), max_attempts = tonumber(own[3]),
    replay_window = age(own[4]), dedup_capacity = tonumber(own[5]),
    late_settle = own[6] == 'until_redelivered',
    ready_age = age(own[7]), ready_count = tonumber(own[8]), in_flight_factor = tonumber(own[9]),
    dead_age = age(own[10]), dead_count = tonumber(own[11]),
  }
end

-- Numbers that say who was first: `count` of them, the last of which is given.
local function stamps(count, name)
  local last = redis.pcall('HINCRBY', STATE, 'stamp', count)
  if type(last) == 'number' and last < 9e15 then
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

-- Shared with others, who let whole keys go when nobody has used them for so long.
local function keep_alive()
  local ttl = tonumber(ARGV[2])
  if ttl > 0 then
    for at = 1, 5 do
      call('EXPIRE', KEYS[at], ttl)
    end
    local window = math.ceil((rules and rules.replay_window or 0) / UNIT)
    call('EXPIRE', KNOWN, math.max(ttl, window))
    call('EXPIRE', KNOWN_UNTIL, math.max(ttl, window))
    -- The order of those who wait behind others, who stay, is told by these.
    local keep = call('EXISTS', WAITING) == 1
    for _, key in ipairs({ AGES, STATE }) do
      if keep then
        call('PERSIST', key)
      else
        call('EXPIRE', key, ttl)
      end
    end
  elseif call('TTL', DATA) >= 0 or call('TTL', STATE) >= 0 then
    -- Whoever said so before us: a mailbox that is in use must not go meanwhile.
    for at = 1, 13 do
      call('PERSIST', KEYS[at])
    end
  end
end

local function forget(id)
  local fields = {}
  for at = 1, #FIELDS do
    fields[at] = id .. FIELDS[at]
  end
  call('HDEL', META, unpack(fields))
  call('HDEL', DATA, id)
  call('ZREM', AGES, id)
end

-- When a message sent by others was sent, as text: `2025-01-31T12:00:00.5+01:00`.
local function read_wall(text)
  local year, month, day, hour, minute, second, part, rest =
    string.match(text or '', '^(%d%d%d%d)-(%d%d)-(%d%d)[T ](%d%d):(%d%d):(%d%d)(%.?%d*)(.*)$')
  if not year then
    return now
  end
  year, month, day = tonumber(year), tonumber(month), tonumber(day)
  if month <= 2 then
    year, month = year - 1, month + 12
  end
  local days = 365 * year + math.floor(year / 4) - math.floor(year / 100)
    + math.floor(year / 400) + math.floor((153 * (month - 3) + 2) / 5) + day - 719469
  local seconds = days * 86400 + hour * 3600 + minute * 60 + second + (tonumber('0' .. part) or 0)
  local sign, hours, minutes = string.match(rest, '^([+-])(%d%d):?(%d%d)$')
  if sign then
    local offset = hours * 3600 + minutes * 60
    seconds = sign == '+' and seconds - offset or seconds + offset
  end
  return math.floor(seconds * UNIT)
end

-- When a message came in, from what is written beside it.
local function entered(attrs, enqueued)
  local at = attrs and string.match(attrs, '^(%d+);')
  return at and tonumber(at) or read_wall(enqueued)
end

-- Puts a message in line: receivable from `due` on.
local function place(id, due)
  if due <= now then
    call('LPUSH', PENDING, id)
  else
    call('ZADD', INVISIBLE, score(due), id)
    call('ZADD', DELAYED, score(due), id)
    call('HSET', META, id .. ':turn', 'd' .. whole(stamps(1)))
  end
end

-- What stands for a message that waits behind the first of its group.
local function place_behind(id, group, number)
  return redis.sha1hex(group) .. string.format('%016.0f', number) .. id
end

-- The first of a group has gone: the next one moves up, if it is still there.
local function move_up(group)
  local hash = redis.sha1hex(group)
  -- If more of them are gone, the next who comes by goes on.
  for _ = 1, MANY do
    local next = call('ZRANGEBYLEX', WAITING, '[' .. hash, '(' .. hash .. 'g', 'LIMIT', 0, 1)[1]
    if not next then
      call('HDEL', HEADS, group)
      return
    end
    call('ZREM', WAITING, next)
    local id = string.sub(next, 57)
    if call('HEXISTS', DATA, id) == 1 then
      call('HSET', HEADS, group, id)
      local due = tonumber(call('HGET', META, id .. ':due') or '') or 0
      call('HDEL', META, id .. ':due')
      place(id, due)
      return
    end
    forget(id)
  end
end

-- Adds a message to its group; true if it is the first.
local function join(id, group, due, number)
  if call('HSETNX', HEADS, group, id) == 1 then
    return true
  end
  -- Others may have taken away the first, and all who waited behind it.
  if call('HEXISTS', DATA, call('HGET', HEADS, group)) == 0 then
    move_up(group)
    if call('HSETNX', HEADS, group, id) == 1 then
      return true
    end
  end
  call('ZADD', WAITING, 0, place_behind(id, group, number))
  if due > now then
    call('HSET', META, id .. ':due', whole(due))
  end
  return false
end

local function leave_group(id, group)
  if group and call('HGET', HEADS, group) == id then
    move_up(group)
  end
end

-- Clears away what is kept beside a message whose payload is gone: others who acknowledge do not
-- know of it. True if it was so.
local function clear_away(id)
  if call('HEXISTS', DATA, id) == 1 then
    return false
  end
  local group = call('HGET', META, id .. ':group')
  forget(id)
  call('ZREM', DELAYED, id)
  leave_group(id, group)
  return true
end

-- The same for groups whose first is gone: some of them, so many at most.
local function clear_groups(most)
  local heads, moved = call('HRANDFIELD', HEADS, most, 'WITHVALUES'), 0
  for at = 1, #heads, 2 do
    if call('HEXISTS', DATA, heads[at + 1]) == 0 then
      move_up(heads[at])
      moved = moved + 1
    end
  end
  return moved
end

-- Puts back in line whatever is due, in the order in which it became so.
local function bring_back()
  local due = call('ZRANGEBYSCORE', INVISIBLE, '-inf', score(now), 'WITHSCORES', 'LIMIT', 0, MANY)
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

-- Makes a dead letter of a message that has no place in line any more.
local function bury(id, reason, error)
  local kept = call('HMGET', META, id .. ':enqueued', id .. ':reply_to', id .. ':count',
    id .. ':attrs', id .. ':error', id .. ':group', id .. ':turn')
  local timed_out = (reason == 'max_attempts' or reason == 'expired')
    and kept[7] and string.match(kept[7], '^%d')
  local last = call('ZREVRANGE', DEAD, 0, 0, 'WITHSCORES')[2]
  local order = math.max(now, (tonumber(last or '') or 0) + 1)
  call('ZADD', DEAD, whole(order), id)
  local grave = { id, call('HGET', DATA, id) or '', id .. ':reason', reason,
    id .. ':died', whole(now) }
  local function keep(field, value)
    if value then
      grave[#grave + 1] = id .. field
      grave[#grave + 1] = value
    end
  end
  keep(':enqueued', kept[1])
  keep(':reply_to', kept[2])
  keep(':count', kept[3])
  keep(':attrs', kept[4])
  keep(':error', error or kept[5])
  keep(':group', kept[6])
  call('HSET', GRAVES, unpack(grave))
  forget(id)
  leave_group(id, kept[6])
  total('timed_out', timed_out and 1 or 0)
  total('dead_lettered', 1)
end

local GRAVE = {
  '', ':reason', ':died', ':enqueued', ':reply_to', ':count', ':attrs', ':error', ':group',
}

local function empty_grave(id)
  local fields = {}
  for at = 1, #GRAVE do
    fields[at] = id .. GRAVE[at]
  end
  call('HDEL', GRAVES, unpack(fields))
  call('ZREM', DEAD, id)
end

-- Takes a message out of line, wherever it stands.
local function take_out(id)
  if call('ZREM', INVISIBLE, id) == 1 then
    call('ZREM', DELAYED, id)
    return true
  end
  -- It may wait behind the first of its group, in the order of its age. The line comes last: it is
  -- gone through from its end.
  local group, number = call('HGET', META, id .. ':group'), call('ZSCORE', AGES, id)
  if group and number and call('ZREM', WAITING, place_behind(id, group, number)) == 1 then
    return true
  end
  return call('LREM', PENDING, -1, id) == 1
end

-- Drops a dead letter if there are too many, or it is too old; false if there is none such.
local function drop_dead()
  local oldest = (rules.dead_age or rules.dead_count) and call('ZRANGE', DEAD, 0, 0)[1]
  if not oldest then
    return false
  end
  local died = tonumber(call('HGET', GRAVES, oldest .. ':died') or '') or 0
  local over = rules.dead_count and call('ZCARD', DEAD) > rules.dead_count
  if not over and not (rules.dead_age and died + rules.dead_age <= now) then
    return false
  end
  empty_grave(oldest)
  total('retention_dropped', 1)
  return true
end

-- Makes a dead letter of the oldest message if there are too many, or it is too old; false if it is
-- neither.
local function expire()
  local oldest = (rules.ready_age or rules.ready_count) and call('ZRANGE', AGES, 0, 0)[1]
  if not oldest then
    return false
  end
  local kept = call('HMGET', META, oldest .. ':attrs', oldest .. ':enqueued', oldest .. ':handle')
  local held = kept[3] and call('ZSCORE', INVISIBLE, oldest)
  if held and time_of(held) > now then
    return false
  end
  local over = rules.ready_count and live() > rules.ready_count
  local old = rules.ready_age and entered(kept[1], kept[2]) + rules.ready_age <= now
  if not over and not old then
    return false
  end
  if take_out(oldest) or call('HEXISTS', DATA, oldest) == 1 then
    bury(oldest, 'expired')
  else
    -- Others have acknowledged it.
    clear_away(oldest)
  end
  return true
end

-- Retention: looks at the oldest only, so that it costs the same however many there are.
local function retain()
  for _ = 1, MANY do
    if not drop_dead() and not expire() then
      return
    end
  end
end

-- The same for those who only look: without rules of retention nothing is changed.
local function retain_now()
  if rules.ready_age or rules.ready_count or rules.dead_age or rules.dead_count then
    bring_back()
    retain()
  end
end
