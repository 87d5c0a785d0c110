-- Puts dead letters back in line, or deletes them; so many at most in one call.
--
-- ARGV from 4 on: 'redrive' or 'delete'; 'these' and ids; or 'some', a reason or '', how many at
-- most, behind which number and up to which.
-- Answer: 'n' and its id if one of them is no dead letter, 'f' and the bound if it is full, or '';
-- how many; the number to go on behind, '' if there are no more; and the last number there was.
local wrong = wrong_type() or read_rules()
if wrong then
  return wrong
end
bring_back()
retain()
if is_made_again then
  seldom.live_alike()
end
local what, done, answer, behind = ARGV[4], 0, '', ''
local last = call('ZREVRANGE', DEAD, 0, 0, 'WITHSCORES')[2] or '0'

local function revive(id)
  if rules.max_size and live() >= rules.max_size then
    answer = 'f' .. whole(rules.max_size)
    return false
  end
  local kept = call('HMGET', GRAVES, id, id .. ':enqueued', id .. ':reply_to', id .. ':attrs',
    id .. ':group')
  local number = stamps(1)
  local attrs = string.match(kept[4] or '', '^%d*;(.*)$') or ''
  call('HSET', DATA, id, kept[1] or '')
  call('HSET', META, id .. ':enqueued', kept[2] or '', id .. ':attrs', whole(now) .. ';' .. attrs)
  if kept[3] then
    call('HSET', META, id .. ':reply_to', kept[3])
  end
  if kept[5] then
    call('HSET', META, id .. ':group', kept[5])
  end
  call('ZADD', AGES, whole(number), id)
  seldom.empty_grave(id)
  if not kept[5] or seldom.join(id, kept[5], now, number) then
    seldom.place(id, now)
  end
  total('redriven', 1)
  return true
end

local function act(id)
  if what == 'redrive' then
    return revive(id)
  end
  seldom.empty_grave(id)
  return true
end

if ARGV[5] == 'these' then
  for at = 6, #ARGV do
    if not call('ZSCORE', DEAD, ARGV[at]) then
      return { 'n' .. ARGV[at], 0, '', last }
    end
  end
  for at = 6, #ARGV do
    -- One that is named twice is one.
    if call('ZSCORE', DEAD, ARGV[at]) then
      if not act(ARGV[at]) then
        break
      end
      done = done + 1
    end
  end
else
  local reason, most = ARGV[6], tonumber(ARGV[7])
  local ids = call('ZRANGEBYSCORE', DEAD, '(' .. ARGV[8], ARGV[9], 'WITHSCORES', 'LIMIT', 0, MANY)
  for at = 1, #ids, 2 do
    if done >= most then
      break
    end
    if reason == '' or call('HGET', GRAVES, ids[at] .. ':reason') == reason then
      if not act(ids[at]) then
        break
      end
      done = done + 1
    end
    behind = ids[at + 1]
  end
  if #ids < 2 * MANY or done >= most then
    behind = ''
  end
end
if done > 0 then
  retain()
  keep_alive()
end
return { answer, done, behind, last }
