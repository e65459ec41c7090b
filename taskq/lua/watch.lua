#!lua flags=allow-oom
-- watch: asks that the end of a job be published
-- Moves no job. Answers its state; '' when there is no such job (nothing is created then).
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ITEMS  item         id str
-- REPLY  per item     state or ''
-- @include _ended
local replies = {}
for i = 1, item_count do
  local id = item(i)
  local key = prefix .. 'job:' .. id
  local state = redis.pcall('HGET', key, 'state')
  if type(state) ~= 'string' then
    replies[i] = stub_of(id) or ''
  else
    if not ends[state] then redis.call('HSET', key, 'watched', '1') end
    replies[i] = state
  end
end
return replies
