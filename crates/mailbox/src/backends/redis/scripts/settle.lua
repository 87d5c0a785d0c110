-- Settles a batch of deliveries.
--
-- ARGV from 4 on, five each: id, suffix of its handle, verdict (ack, nack, extend, reject, return),
-- a time (nack, extend) or reason (reject), and what went wrong: '' or '=' and text.
-- Answer, one each: '' done; 's' the handle is stale; 'e' its deadline has passed; 'h' and a time:
-- it can be held so long at most.
local wrong = wrong_type() or read_rules()
if wrong then
  return wrong
end
bring_back()
retain()
local answers, handles, ids = {}, {}, {}
for at = 4, #ARGV, 5 do
  ids[#ids + 1] = ARGV[at]
  handles[#handles + 1] = ARGV[at] .. ':handle'
end
handles = call('HMGET', META, unpack(handles))
local scores = call('ZMSCORE', INVISIBLE, unpack(ids))
local settled, acknowledged, gone = {}, 0, {}

-- Takes a delivery out of line: it is valid.
local function end_delivery(id)
  if not take_out(id) then
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
  call('ZREM', INVISIBLE, id)
  call('ZADD', INVISIBLE, score(due), id)
  call('HSET', META, id .. ':turn', turn .. ':' .. whole(stamps(1)))
  return ''
end

local function settle(at, number)
  local id, suffix, verdict, what, error = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3],
    ARGV[at + 4]
  local due = scores[number] and time_of(scores[number])
  local is_late = not due or due <= now
  if handles[number] ~= suffix or settled[id] then
    return 's'
  end
  if is_late and not rules.late_settle then
    return 'e'
  end
  if verdict == 'extend' then
    return extend(id, tonumber(what), not scores[number])
  end
  settled[id] = true
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
    forget(id)
    leave_group(id, group)
    acknowledged = acknowledged + 1
    gone[#gone + 1], gone[#gone + 2] = whole(now), id
  elseif verdict == 'nack' then
    place(id, now + tonumber(what))
  else
    bury(id, what, error ~= '' and string.sub(error, 2) or nil)
  end
  return ''
end

for at = 4, #ARGV, 5 do
  local number = #answers + 1
  answers[number] = settle(at, number)
end
if acknowledged > 0 then
  -- For a moment, so that a send that is tried again late does not bring one back.
  call('ZREMRANGEBYSCORE', GONE, '-inf', whole(now - 60 * UNIT))
  call('ZADD', GONE, unpack(gone))
  call('ZREMRANGEBYRANK', GONE, 0, -MANY * 50)
  call('EXPIRE', GONE, 120)
end
total('acknowledged', acknowledged)
retain()
keep_alive()
return answers
