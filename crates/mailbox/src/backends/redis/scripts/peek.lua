-- Shows messages and changes nothing but what retention does by itself.
--
-- ARGV from 4 on: 'live' and how many; 'dead', how many, and behind which number; or 'these' and
-- ids.
-- Answer: the present, then twelve each: id, phase, deliveries, when it is receivable, payload,
-- time of sending, reply address, what is kept beside it, last error, why it died, when, and its
-- number.
local wrong = wrong_type() or read_rules()
if wrong then
  return wrong
end
retain_now()
local answer = { whole(now) }

local function optional(value)
  return value and '=' .. value or ''
end

local function show(id, phase, count, due, payload, kept, death)
  local at = #answer
  answer[at + 1], answer[at + 2], answer[at + 3], answer[at + 4] = id, phase, count or '0', due
  answer[at + 5], answer[at + 6], answer[at + 7] = payload, kept[1] or '', optional(kept[2])
  answer[at + 8], answer[at + 9] = kept[3] or '', optional(kept[4])
  answer[at + 10], answer[at + 11], answer[at + 12] = death[1] or '', death[2] or '', death[3] or ''
end

local function show_dead(id)
  local order = call('ZSCORE', DEAD, id)
  local kept = order and call('HMGET', GRAVES, id, id .. ':enqueued', id .. ':reply_to',
    id .. ':attrs', id .. ':error', id .. ':count', id .. ':reason', id .. ':died')
  if not kept or not kept[1] then
    return false
  end
  show(id, 'dead', kept[6], whole(now), kept[1], { kept[2], kept[3], kept[4], kept[5] },
    { kept[7], kept[8], whole(tonumber(order)) })
  return true
end

local function show_live(id)
  local payload = call('HGET', DATA, id)
  if not payload then
    return false
  end
  local kept = call('HMGET', META, id .. ':enqueued', id .. ':reply_to', id .. ':attrs',
    id .. ':error', id .. ':count', id .. ':handle', id .. ':due')
  local held = call('ZSCORE', INVISIBLE, id)
  local due = held and time_of(held) or tonumber(kept[7] or '') or now
  local phase = 'ready'
  if held and due > now then
    phase = kept[6] and 'invisible' or 'delayed'
  end
  show(id, phase, kept[5], whole(math.max(due, now)), payload, kept, {})
  return true
end

if ARGV[4] == 'live' then
  local most, shown = tonumber(ARGV[5]), {}
  local oldest = most > 0 and call('ZRANGE', AGES, 0, most - 1) or {}
  for _, id in ipairs(oldest) do
    shown[id] = show_live(id)
  end
  -- Messages of others have no number.
  local left = most - (#answer - 1) / 12
  if left > 0 and call('HLEN', DATA) > (#answer - 1) / 12 then
    for _, line in ipairs({ { 'LRANGE', PENDING, -MANY, -1 }, { 'ZRANGE', INVISIBLE, 0, MANY } }) do
      local ids = call(unpack(line))
      local from, to, step = 1, #ids, 1
      if line[1] == 'LRANGE' then
        from, to, step = #ids, 1, -1
      end
      for at = from, to, step do
        if left > 0 and not shown[ids[at]] and show_live(ids[at]) then
          shown[ids[at]], left = true, left - 1
        end
      end
    end
  end
elseif ARGV[4] == 'dead' then
  for _, id in ipairs(call('ZRANGEBYSCORE', DEAD, '(' .. ARGV[6], '+inf', 'LIMIT', 0, ARGV[5])) do
    show_dead(id)
  end
else
  for at = 5, #ARGV do
    if not show_live(ARGV[at]) then
      show_dead(ARGV[at])
    end
  end
end
return answer
