-- Sends a batch. A message whose id is known was sent by an earlier try of the same call: nothing
-- is done again, and the answer is the same.
--
-- ARGV from 4 on, nine each: id, time of sending, reply address, payload, what is kept beside it,
-- delay, idempotency key, fingerprint of the payload, group. Without one: empty text; a reply
-- address begins with `=`.
-- Answer, one each: '' sent; 'd' and the id of the first; 't' key taken; 'f' and the bound: full;
-- 'k', how many keys there are at most, and after which time there is a place for another.
local wrong = wrong_type() or read_rules()
if wrong then
  return wrong
end
-- First, because a server without memory refuses this one, and lets the rest of a script through
-- that has begun to write.
local first = stamps((#ARGV - 3) / 9, ARGV[4]) - (#ARGV - 3) / 9
bring_back()
retain()
local answers, count, is_full = {}, 0, live()
local pushed, bodies, beside, aged = {}, {}, {}, {}

-- What has no order of its own is written at once; before anything that looks at it.
local function flush()
  if #bodies > 0 then
    call('HSET', DATA, unpack(bodies))
    call('HSET', META, unpack(beside))
    call('ZADD', AGES, unpack(aged))
  end
  if #pushed > 0 then
    call('LPUSH', PENDING, unpack(pushed))
  end
  pushed, bodies, beside, aged = {}, {}, {}, {}
end

local function known(key, print)
  for _, old in ipairs(call('ZRANGEBYSCORE', KNOWN_UNTIL, '-inf', whole(now), 'LIMIT', 0, MANY)) do
    call('ZREM', KNOWN_UNTIL, old)
    call('HDEL', KNOWN, old)
  end
  local there = call('HGET', KNOWN, key)
  if there and (tonumber(call('ZSCORE', KNOWN_UNTIL, key) or '') or 0) > now then
    local same = string.sub(there, 1, #print) == print
    return same and 'd' .. string.sub(there, #print + 1) or 't'
  end
  if call('ZCARD', KNOWN_UNTIL) >= rules.dedup_capacity then
    local soonest = call('ZRANGE', KNOWN_UNTIL, 0, 0, 'WITHSCORES')[2]
    local after = math.max(0, tonumber(soonest or '0') - now)
    return 'k' .. whole(rules.dedup_capacity) .. ' ' .. whole(after)
  end
end

local sent = 0
local function send(at, number)
  local id, enqueued, reply_to, payload = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local attrs, delay, key = ARGV[at + 4], tonumber(ARGV[at + 5]), ARGV[at + 6]
  local print, group = ARGV[at + 7], ARGV[at + 8]
  if call('HEXISTS', DATA, id) == 1 or call('ZSCORE', DEAD, id)
    or call('ZSCORE', GONE, id) then
    return ''
  end
  if key ~= '' then
    local answer = known(key, print)
    if answer then
      -- An earlier try of this very message, which is gone by now.
      return answer == 'd' .. id and '' or answer
    end
  end
  if rules.max_size and is_full >= rules.max_size then
    return 'f' .. whole(rules.max_size)
  end
  if key ~= '' and rules.replay_window > 0 then
    call('HSET', KNOWN, key, print .. id)
    call('ZADD', KNOWN_UNTIL, whole(now + rules.replay_window), key)
  end
  local function keep(list, name, value)
    list[#list + 1] = name
    list[#list + 1] = value
  end
  keep(bodies, id, payload)
  keep(beside, id .. ':enqueued', enqueued)
  keep(beside, id .. ':attrs', whole(now) .. ';' .. attrs)
  if reply_to ~= '' then
    keep(beside, id .. ':reply_to', string.sub(reply_to, 2))
  end
  keep(aged, whole(number), id)
  local due = now + delay
  if group ~= '' then
    keep(beside, id .. ':group', group)
  end
  if group == '' and delay == 0 then
    pushed[#pushed + 1] = id
  else
    flush()
    if group == '' or join(id, group, due, number) then
      place(id, due)
    end
  end
  is_full, sent = is_full + 1, sent + 1
  return ''
end

local seen = {}
for at = 4, #ARGV, 9 do
  local key = ARGV[at + 6]
  if key ~= '' or seen[ARGV[at]] then
    flush()
  end
  seen[ARGV[at]] = true
  count = count + 1
  answers[count] = send(at, first + count)
end
flush()
total('sent', sent)
retain()
keep_alive()
return answers
