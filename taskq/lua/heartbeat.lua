#!lua flags=allow-oom
-- heartbeat: renews the leases of many workers
-- Moves no job. `holds` is how many jobs the worker believes to have. LOST when it was marked dead, or
-- when it holds jobs and its list here is empty; a lease that vanished over a list that is there is set
-- again. Otherwise the length of its list, and which of its jobs were asked to stop.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ITEMS  item         worker str, lease_ms int, holds int
-- REPLY  per item     OK | LOST | BROKEN
-- @include _clock _seen
local stopping = redis.pcall('SCARD', prefix .. 'cancelling')
local shortest = math.huge
local replies = {}
for i = 1, item_count do
  local worker, lease_ms, holds = item(i)
  shortest = math.min(shortest, lease_ms)
  local list = prefix .. 'processing:' .. worker
  local length, death = redis.pcall('LLEN', list), redis.pcall('ZSCORE', prefix .. 'dead', worker)
  if type(length) ~= 'number' or type(death) == 'table' then
    replies[i] = { 'BROKEN' }
  elseif death or (holds > 0 and length == 0) then
    replies[i] = { 'LOST' }
  else
    local set = redis.pcall('ZADD', prefix .. 'leases', NOW + lease_ms, worker)
    local answer = { type(set) == 'number' and 'OK' or 'BROKEN', length }
    if type(stopping) == 'number' and stopping > 0 and length > 0 then
      local ids = redis.call('LRANGE', list, 0, 999)
      local asked = redis.pcall('SMISMEMBER', prefix .. 'cancelling', unpack(ids))
      for j = 1, #ids do if asked[j] == 1 then answer[#answer + 1] = ids[j] end end
    end
    replies[i] = answer
  end
end
note_sign_of_life(shortest, false)
return replies
