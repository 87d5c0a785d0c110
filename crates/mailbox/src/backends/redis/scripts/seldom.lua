-- What few calls need: how messages move, die and are cleared away. The body of a function that
-- fills `seldom`, see there.

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
    has_others = true
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

-- Makes a dead letter of a message that has no place in line any more.
local function bury(id, reason, error)
  local kept = call('HMGET', META, id .. ':enqueued', id .. ':reply_to', id .. ':count',
    id .. ':attrs', id .. ':error', id .. ':group', id .. ':turn')
  local timed_out = (reason == 'max_attempts' or reason == 'expired')
    and kept[7] and string.match(kept[7], '^%d')
  local last = call('ZREVRANGE', DEAD, 0, 0, 'WITHSCORES')[2]
  local order = math.max(now, (tonumber(last or '') or 0) + 1)
  has_others = true
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

-- Whoever only looks does not use the mailbox: what was made again lives as long as the rest.
local function live_alike()
  local left = ARGV[2] == '0' and -1 or call('PTTL', DATA)
  -- Less than what is enough: whoever uses it next sees to all.
  local short = ARGV[2] * 990
  if left == -2 then
    left = short
  end
  local keys = { PENDING, INVISIBLE, META, DELAYED }
  if call('EXISTS', WAITING) == 0 then
    keys[5], keys[6] = AGES, STATE
  end
  for at = 1, left > 0 and #keys or 0 do
    if call('PTTL', keys[at]) == -1 then
      call('PEXPIRE', keys[at], whole(at > 4 and math.min(left, short) or left))
    end
  end
end

seldom.forget, seldom.entered, seldom.place, seldom.join = forget, entered, place, join
seldom.leave_group, seldom.clear_away, seldom.clear_groups = leave_group, clear_away, clear_groups
seldom.bury, seldom.empty_grave, seldom.take_out = bury, empty_grave, take_out
seldom.retain, seldom.live_alike = retain, live_alike
