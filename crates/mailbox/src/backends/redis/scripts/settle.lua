-- Settles a batch of deliveries.
--
-- ARGV from 4 on, three each: id, suffix of its handle, verdict (ack, nack, extend, reject,
-- return, bury: reject what nobody else holds); and two more for nack, extend, reject and bury: a
-- time or a reason, and what went wrong: '' or '=' and text.
-- Answer, one each: '' done; 's' the handle is stale; 'e' its deadline has passed; 'h' and a time:
-- it can be held so long at most.
local wrong = wrong_type() or read_rules()
if wrong then
  return wrong
end
bring_back()
retain()
local answers, handles, ids, from, count = {}, {}, {}, {}, 0
local at = 4
while ARGV[at] do
  local verdict = ARGV[at + 2]
  count = count + 1
  ids[count], handles[count], from[count] = ARGV[at], ARGV[at] .. ':handle', at
  at = at + ((verdict == 'ack' or verdict == 'return') and 3 or 5)
end
handles = call('HMGET', META, unpack(handles))
local scores = call('ZMSCORE', INVISIBLE, unpack(ids))
local settled, acknowledged, gone = {}, 0, {}

-- Takes a delivery out of line: it is valid.
local function end_delivery(id)
  if not seldom.take_out(id) then
    return false
  end
  call('HDEL', META, id .. ':handle', id .. ':turn', id .. ':hold')
  return true
end

-- Back to where it was: before everybody but those who were before it.
local function undo(id)
  local kept = call('HMGET', META, id .. ':turn', id .. ':count')
  local turn = tonumber(string.match(kept[1] or '', '^(%d+)') or '') or 0
  if not end_delivery(id) then
    return
  end
  local count = (tonumber(kept[2] or '') or 1) - 1
  if count > 0 then
    call('HSET', META, id .. ':count', whole(count))
  else
    call('HDEL', META, id .. ':count')
  end
  local before = {}
  while #before < MANY do
    local first = call('LINDEX', PENDING, -1)
    local other = first and string.match(call('HGET', META, first .. ':turn') or '', '^u(%d+)')
    if not other or tonumber(other) > turn then
      break
    end
    before[#before + 1] = call('RPOP', PENDING)
  end
  call('RPUSH', PENDING, id)
  for at = #before, 1, -1 do
    call('RPUSH', PENDING, before[at])
  end
  call('HSET', META, id .. ':turn', 'u' .. whole(turn))
end

local function extend(id, time, is_in_line)
  local hold = tonumber(call('HGET', META, id .. ':hold') or '')
  local due = now + time
  if hold and due > hold then
    return 'h' .. whole(math.max(0, hold - now))
  end
  local turn = string.match(call('HGET', META, id .. ':turn') or '0', '^(%d+)') or '0'
  if is_in_line then
    call('LREM', PENDING, 1, id)
  end
  -- Out first: a server without memory refuses a script that begins with putting something in.
  is_made_again = true
  call('ZREM', INVISIBLE, id)
  call('ZADD', INVISIBLE, score(due), id)
  call('HSET', META, id .. ':turn', turn .. ':' .. whole(stamps(1)))
  return ''
end

local function acknowledge(id)
  acknowledged = acknowledged + 1
  gone[acknowledged] = id
  return ''
end

-- Those that were acknowledged leave together.
local leaving = {}
local function let_go()
  if #leaving == 0 then
    return
  end
  local fields, groups, kinds = {}, {}, #FIELDS
  for at, id in ipairs(leaving) do
    groups[at] = has_others and call('HGET', META, id .. ':group')
    for kind = 1, kinds do
      fields[kinds * (at - 1) + kind] = id .. FIELDS[kind]
    end
  end
  call('ZREM', INVISIBLE, unpack(leaving))
  if has_others then
    -- Others who bring back what is due do not know that it was delayed.
    call('ZREM', DELAYED, unpack(leaving))
  end
  call('HDEL', META, unpack(fields))
  call('HDEL', DATA, unpack(leaving))
  call('ZREM', AGES, unpack(leaving))
  for at, id in ipairs(leaving) do
    if groups[at] then
      seldom.leave_group(id, groups[at])
    end
  end
  leaving = {}
end

local function settle(number)
  local at = from[number]
  local id, suffix, verdict, what, error = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3],
    ARGV[at + 4]
  local due = scores[number] and time_of(scores[number])
  local is_late = not due or due <= now
  if verdict == 'bury' then
    -- Ours, also if its deadline has passed meanwhile, or in line.
    local is_free = not due or handles[number] == suffix
    local is_there = is_free and call('HEXISTS', DATA, id) == 1
    if not is_there or not seldom.take_out(id) then
      return 's'
    end
    seldom.bury(id, what, string.sub(error, 2))
    return ''
  end
  if handles[number] ~= suffix or settled[id] then
    return 's'
  end
  if is_late and not rules.late_settle then
    return 'e'
  end
  if verdict == 'extend' then
    let_go()
    return extend(id, tonumber(what), not scores[number])
  end
  settled[id] = true
  if verdict == 'ack' and not is_late then
    leaving[#leaving + 1] = id
    return acknowledge(id)
  end
  let_go()
  if verdict == 'return' then
    undo(id)
    return ''
  end
  local group = call('HGET', META, id .. ':group')
  -- First, because a server without memory refuses what comes later if it comes first.
  if not end_delivery(id) then
    return 's'
  end
  if error ~= '' and verdict == 'nack' then
    call('HSET', META, id .. ':error', string.sub(error, 2))
  end
  if verdict == 'ack' then
    seldom.forget(id)
    seldom.leave_group(id, group)
    return acknowledge(id)
  elseif verdict == 'nack' then
    seldom.place(id, now + tonumber(what))
  else
    seldom.bury(id, what, error ~= '' and string.sub(error, 2) or nil)
  end
  return ''
end

for number = 1, count do
  answers[number] = settle(number)
end
let_go()
if acknowledged > 0 then
  -- For a moment, so that a send that is tried again late does not bring one back.
  local when, scored = whole(now), {}
  for at = 1, acknowledged do
    scored[2 * at - 1], scored[2 * at] = when, gone[at]
  end
  call('ZREMRANGEBYSCORE', GONE, '-inf', whole(now - 60 * UNIT))
  call('ZADD', GONE, unpack(scored))
  call('ZREMRANGEBYRANK', GONE, '0', -MANY * 50)
  call('EXPIRE', GONE, '120')
end
total('acknowledged', acknowledged)
retain()
keep_alive()
return answers
