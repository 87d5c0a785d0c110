-- Sends a batch. A message whose id is known was sent by an earlier try of the same call: nothing
-- is done again, and the answer is the same.
--
-- ARGV[4]: time of sending. 5: how many messages. From 6 on, four each: id, payload, what is kept
-- beside it, and a word that says what follows, each letter for one thing: r, its reply address; d,
-- its delay; k, its idempotency key and then the fingerprint of its payload; g, its group.
-- Answer, one each: '' sent; 'd' and the id of the first; 't' key taken; 'f' and the bound: full;
-- 'k', how many keys there are at most, and after which time there is a place for another.
local wrong = wrong_type() or read_rules()
if wrong then
  return wrong
end
-- First, because a server without memory refuses this one, and lets the rest of a script through
-- that has begun to write.
local many = tonumber(ARGV[5])
local first = stamps(many, ARGV[6]) - many
bring_back()
retain()
local may_have_died = rules.ready_age or rules.ready_count
local answers, count = {}, 0
local is_full = (has_others or may_have_died) and live() or pending_at_first + invisible_at_first
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

local sent, present = 0, whole(now) .. ';'
local is_there, is_gone, is_dead
local function send(number, id, payload, attrs, reply_to, delay, key, print, group)
  if is_there[count] or is_gone[count] or is_dead and is_dead[count] then
    return ''
  end
  if key then
    local answer = known(key, print)
    if answer then
      -- An earlier try of this very message, which is gone by now.
      return answer == 'd' .. id and '' or answer
    end
  end
  if rules.max_size and is_full >= rules.max_size then
    return 'f' .. whole(rules.max_size)
  end
  if key and rules.replay_window > 0 then
    has_others, is_made_again = true, true
    call('HSET', KNOWN, key, print .. id)
    call('ZADD', KNOWN_UNTIL, whole(now + rules.replay_window), key)
  end
  local width, depth = #beside, #bodies
  bodies[depth + 1], bodies[depth + 2] = id, payload
  aged[depth + 1], aged[depth + 2] = whole(number), id
  beside[width + 1], beside[width + 2] = id .. ':enqueued', ARGV[4]
  beside[width + 3], beside[width + 4] = id .. ':attrs', present .. attrs
  if reply_to then
    beside[width + 5], beside[width + 6] = id .. ':reply_to', reply_to
  end
  if group then
    beside[#beside + 1], beside[#beside + 2] = id .. ':group', group
  end
  if not group and not delay then
    pushed[#pushed + 1] = id
  else
    local due = now + (delay or 0)
    flush()
    if not group or seldom.join(id, group, due, number) then
      seldom.place(id, due)
    end
  end
  is_full, sent = is_full + 1, sent + 1
  return ''
end

-- Where each begins.
local at, from, ids = 6, {}, {}
while ARGV[at] do
  local word = ARGV[at + 3]
  ids[#ids + 1], from[#from + 1] = ARGV[at], at
  at = at + 4 + #word + (string.find(word, 'k') and 1 or 0)
end
is_there, is_gone = call('ZMSCORE', AGES, unpack(ids)), call('ZMSCORE', GONE, unpack(ids))
is_dead = has_others and call('ZMSCORE', DEAD, unpack(ids))
for number = 1, #ids do
  local at = from[number]
  local id, payload, attrs, word = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  count = number
  if word == '' then
    answers[count] = send(first + count, id, payload, attrs)
  else
    local more = {}
    at = at + 4
    for letter in string.gmatch(word, '%l') do
      more[letter], at = ARGV[at], at + 1
      if letter == 'k' then
        more.print, at = ARGV[at], at + 1
      end
    end
    answers[count] = send(first + count, id, payload, attrs, more.r, tonumber(more.d), more.k,
      more.print, more.g)
  end
end
flush()
total('sent', sent)
retain()
keep_alive('sent')
return answers
