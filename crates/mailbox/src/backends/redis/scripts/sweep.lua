-- Clears away what others leave behind who know a part of the layout only: what we keep beside
-- messages that they have acknowledged, and groups whose first they have. Looks at some, whichever:
-- who comes again sees others. Answer: nothing.
local wrong = wrong_type() or read_rules()
if wrong then
  return wrong
end
bring_back()
for _, id in ipairs(call('ZRANDMEMBER', AGES, 100)) do
  seldom.clear_away(id)
end
seldom.clear_groups(100)
seldom.live_alike()
return {}
