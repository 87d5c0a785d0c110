-- Counts. Answer: the present, delayed, ready, invisible, dead, when the oldest came in ('' if
-- there is none), idempotency keys, nine totals, and for how many seconds more the messages are
-- kept if nobody does anything (-1: for ever, -2: there are none).
local wrong = wrong_type() or read_rules()
if wrong then
  return wrong
end
retain_now()
local function after(key)
  return call('ZCOUNT', key, '(' .. string.format('%.17g', score(now)), '+inf')
end
local delayed = after(DELAYED)
local invisible = math.max(0, after(INVISIBLE) - delayed)
local ready = live() - delayed - invisible
local oldest = call('ZRANGE', AGES, 0, 0)[1]
-- Others do not say when: the one that has waited longest is at the end of the line.
local last = call('LINDEX', PENDING, -1)
local since = nil
for _, id in ipairs({ oldest or false, last or false }) do
  if id then
    local kept = call('HMGET', META, id .. ':attrs', id .. ':enqueued')
    if kept[1] or kept[2] then
      local at = seldom.entered(kept[1], kept[2])
      since = since and math.min(since, at) or at
    end
  end
end
local answer = {
  whole(now), delayed, ready, invisible, call('ZCARD', DEAD), since and whole(since) or '',
  call('ZCOUNT', KNOWN_UNTIL, '(' .. whole(now), '+inf'),
}
local totals = call('HMGET', STATE, 'sent', 'delivered', 'redelivered', 'timed_out', 'acknowledged',
  'dead_lettered', 'redriven', 'purged', 'retention_dropped')
for at = 1, 9 do
  answer[#answer + 1] = tonumber(totals[at] or '') or 0
end
answer[#answer + 1] = call('TTL', DATA)
return answer
