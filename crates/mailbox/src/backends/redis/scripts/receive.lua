-- Takes up to so many messages out of sight. Whoever asks again with the same secret, because no
-- answer came, is given what an earlier try has taken first.
--
-- ARGV from 4 on: most messages, visibility timeout, secret, and how long ago this was first tried
-- (empty for a first try).
-- Answer: the present; when the next message is due, or ''; 'f' and two numbers if too many are in
-- flight, or ''; 'm' if there may be more to come at once, or ''; then seven each: id, suffix of
-- the handle, deliveries, payload, time of sending, reply address, what is kept beside it.
local wrong = wrong_type() or read_rules()
if wrong then
  return wrong
end
bring_back()
retain()
local most, timeout, secret = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local answer = { whole(now), '', '', '' }
local taken, scores, beside, back, again = 0, {}, {}, {}, 0
local looked, timed_out, redelivered = 0, 0, 0

local function hand_over(id, suffix, count, payload, enqueued, reply_to, attrs)
  local at = #answer
  answer[at + 1], answer[at + 2], answer[at + 3], answer[at + 4] = id, suffix, count, payload
  answer[at + 5], answer[at + 6] = enqueued or '', reply_to and '=' .. reply_to or ''
  answer[at + 7] = attrs or ''
  taken = taken + 1
end

if ARGV[7] ~= '' then
  -- What an earlier try took has a deadline from then to now, and a handle made of this secret;
  -- give or take a second for the clock of another server.
  local from = score(now + timeout - tonumber(ARGV[7]) - UNIT)
  local to = score(now + timeout + 300 * UNIT / 1000000)
  for _, id in ipairs(call('ZRANGEBYSCORE', INVISIBLE, from, to, 'LIMIT', 0, 10000)) do
    local suffix = redis.sha1hex(secret .. id)
    if taken < most and call('HGET', META, id .. ':handle') == suffix then
      local kept = call('HMGET', META, id .. ':count', id .. ':enqueued', id .. ':reply_to',
        id .. ':attrs')
      local payload = call('HGET', DATA, id)
      if payload then
        hand_over(id, suffix, kept[1] or '1', payload, kept[2], kept[3], kept[4])
      end
    end
  end
  again = taken
end

local invisible, held = invisible_at_first, nil
-- Whether one more may be in flight.
local function is_room()
  if timeout == 0 or taken - again + invisible < rules.max_in_flight then
    return true
  end
  held = held or call('ZCOUNT', INVISIBLE, '(' .. string.format('%.17g', score(now)), '+inf')
    - call('ZCOUNT', DELAYED, '(' .. string.format('%.17g', score(now)), '+inf')
  return held + taken - again < rules.max_in_flight
end

local function doomed(count, attrs, enqueued)
  if rules.ready_age and seldom.entered(attrs, enqueued) + rules.ready_age <= now then
    return 'expired'
  end
  if rules.max_attempts and count >= rules.max_attempts then
    return 'max_attempts'
  end
end

-- Taken out of line at a time, and so many bytes at most altogether, or a little more: an answer
-- that takes too long is asked for again, and its messages would die without having been seen.
local AT_A_TIME, LARGE = 16, 8 * 1024 * 1024
local stamp, seen, size = nil, {}, 0
while taken < most and looked < MANY and again == 0 and size < LARGE do
  local ids = call('RPOP', PENDING, math.min(most - taken, AT_A_TIME))
  if not ids or #ids == 0 then
    break
  end
  looked = looked + #ids
  -- Without others that are held, none of these can be.
  local fields, kinds = {}, invisible_at_first == 0 and 5 or 6
  for at = 1, #ids do
    local id, from = ids[at], kinds * (at - 1)
    fields[from + 1], fields[from + 2] = id .. ':count', id .. ':enqueued'
    fields[from + 3], fields[from + 4] = id .. ':reply_to', id .. ':attrs'
    fields[from + 5] = id .. ':turn'
    if kinds == 6 then
      fields[from + 6] = id .. ':handle'
    end
  end
  local payloads = call('HMGET', DATA, unpack(ids))
  local kept = call('HMGET', META, unpack(fields))
  stamp = stamp or stamps(most) - most
  for at = 1, #ids do
    local id, from = ids[at], kinds * (at - 1)
    local count = math.max(0, tonumber(kept[from + 1] or '') or 0)
    local enqueued, attrs = kept[from + 2], kept[from + 4]
    local payload = payloads[at]
    local reason = payload and doomed(count, attrs, enqueued)
    -- Others may put it in line again while it is held, or twice.
    local twice = seen[id] or kinds == 6 and kept[from + 6] and call('ZSCORE', INVISIBLE, id)
    seen[id] = true
    if twice then
      -- Its other place is enough.
    elseif not payload then
      -- Its payload is gone: it was sent twice, or others have removed it.
      seldom.clear_away(id)
    elseif reason then
      seldom.bury(id, reason)
    elseif not is_room() then
      answer[3] = 'f' .. whole(rules.max_in_flight)
      is_made_again = true
      for rest = #ids, at, -1 do
        call('RPUSH', PENDING, ids[rest])
      end
      break
    else
      local suffix, turn = redis.sha1hex(secret .. id), kept[from + 5]
      stamp = stamp + 1
      local due = now + timeout + taken * (timeout > 0 and UNIT == 1000000 and 1 or 0)
      if timeout == 0 then
        back[#back + 1] = id
      else
        -- Backwards: a short sorted set is looked through from the beginning.
        local first = 2 * (most - taken) - 1
        scores[first], scores[first + 1] = score(due), id
      end
      local width, times = #beside, whole(count + 1)
      beside[width + 1], beside[width + 2] = fields[from + 1], times
      beside[width + 3], beside[width + 4] = fields[from + 5], whole(stamp)
      if timeout > 0 or rules.late_settle then
        beside[width + 5], beside[width + 6] = id .. ':handle', suffix
      end
      if rules.in_flight_factor then
        local hold = now + timeout * rules.in_flight_factor
        beside[#beside + 1], beside[#beside + 2] = id .. ':hold', whole(hold)
      elseif count > 0 then
        call('HDEL', META, id .. ':hold')
      end
      timed_out = timed_out + (turn and string.match(turn, '^%d') and 1 or 0)
      redelivered = redelivered + (count > 0 and 1 or 0)
      hand_over(id, suffix, times, payload, enqueued, kept[from + 3], attrs)
      size = size + #payload
    end
  end
  if answer[3] ~= '' then
    break
  end
end

if taken > again and timeout > 0 then
  call('ZADD', INVISIBLE, unpack(scores, 2 * (most - taken) + 1, 2 * most))
end
if #beside > 0 then
  call('HSET', META, unpack(beside))
end
if #back > 0 then
  is_made_again = true
  call('LPUSH', PENDING, unpack(back))
end
local delivered = taken - again
total('delivered', delivered)
total('redelivered', redelivered)
total('timed_out', timed_out)
local next = taken == 0 and call('ZRANGE', INVISIBLE, '0', '0', 'WITHSCORES')[2]
answer[2] = next and whole(time_of(next)) or ''
if looked >= MANY or (taken == 0 and next and time_of(next) <= now) then
  answer[4] = 'm'
end
-- As many ages as payloads: then nobody else has acknowledged one, or sent one. With groups that is
-- not sure enough, because others wait behind the one that is gone.
if has_others or ages_at_first ~= data_at_first then
  for _, id in ipairs(call('ZRANGE', AGES, '0', '1')) do
    seldom.clear_away(id)
  end
end
if has_others and call('ZCARD', WAITING) > 0 then
  seldom.clear_groups(taken == 0 and 20 or 2)
end
if taken == 0 and answer[3] == '' and call('LLEN', PENDING) > 0 then
  answer[4] = 'm'
end
-- Whoever asks uses it, also in vain.
keep_alive('received')
return answer
