#!lua flags=allow-oom
-- log: lines that a running job tells
-- Moves no job; refused, without creating a key, once the run is over or no longer the caller's. The last
-- 200 lines are kept.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   worker       str
-- ITEMS  item         id str, fence str, line json
-- REPLY  per item     OK | STALE | BROKEN
-- @include _clock _config _stats
local replies, told = {}, {}
for i = 1, item_count do
  local id, fence, line = item(i)
  local v = redis.pcall('HMGET', prefix .. 'job:' .. id, 'state', 'worker', 'fence')
  if v.err or v[1] ~= 'running' or v[2] ~= worker or v[3] ~= fence then
    replies[i] = 'STALE'
  else
    local length = redis.pcall('RPUSH', prefix .. 'log:' .. id, line)
    if type(length) ~= 'number' then
      replies[i] = 'BROKEN'
    else
      if length > 200 then redis.call('LTRIM', prefix .. 'log:' .. id, -200, -1) end
      replies[i] = 'OK'
      told[#told + 1] = id
    end
  end
end
tell('log', told)
return replies
