#!lua flags=allow-oom
-- progress: how far a running job is
-- Moves no job; refused, without creating a key, once the run is over or no longer the caller's. The same
-- progress again is not announced again.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   worker       str
-- ITEMS  item         id str, fence str, progress json
-- REPLY  per item     OK | STALE
-- @include _clock _config _stats
local replies, told, types = {}, {}, {}
for i = 1, item_count do
  local id, fence, progress = item(i)
  local key = prefix .. 'job:' .. id
  local v = redis.pcall('HMGET', key, 'state', 'worker', 'fence', 'progress', 'type')
  if v.err or v[1] ~= 'running' or v[2] ~= worker or v[3] ~= fence then
    replies[i] = 'STALE'
  else
    replies[i] = 'OK'
    if v[4] ~= progress then
      redis.call('HSET', key, 'progress', progress)
      told[#told + 1] = id
      types[#told] = v[5] or ''
    end
  end
end
tell('progress', told, types)
return replies
