-- Removes every message that is not a dead letter. ARGV[4] 'all': dead letters, rules and all the
-- rest too. Answer: how many messages; or how many keys.
if ARGV[4] == 'all' then
  return call('UNLINK', unpack(KEYS))
end
local wrong = wrong_type()
if wrong then
  return wrong
end
-- Rules that nobody can read are no reason to keep messages.
read_rules()
local count = live()
call('UNLINK', PENDING, INVISIBLE, DATA, META, DELAYED, AGES, WAITING, HEADS)
total('purged', count)
keep_alive()
return count
