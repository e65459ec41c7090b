#!lua flags=allow-oom
-- overdue: runs of leases that are past their time
-- Moves no job: answers the runs, for the caller to fail them (see fail), whether their client is still there
-- or not. A worker that has such runs is looked at again in a while, should the caller die before; else when
-- its next run may be past its time, in an hour at the latest; and no more once it holds nothing.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   limit        int     workers at most
-- ARGV   timeout_ms   int     for a job that has none of its own
-- REPLY  whole        OK | BROKEN_KEY
-- @include _clock _bulk
local SOON, LATEST = 2000, 3600000
local key = prefix .. 'deadlines'
if not readable_zset('deadlines') then return { 'BROKEN_KEY', 'deadlines' } end
local due = redis.call('ZRANGEBYSCORE', key, '-inf', NOW, 'LIMIT', 0, limit)
-- A look further ahead than it can be was planned by a clock that has gone back since.
local ahead = redis.call('ZRANGEBYSCORE', key, '(' .. exact(NOW + LATEST), '+inf', 'LIMIT', 0, limit)
for i = 1, #ahead do due[#due + 1] = ahead[i] end
local runs = {}
for i = 1, #due do
  local worker = due[i]
  local ids = redis.pcall('LRANGE', prefix .. 'processing:' .. worker, 0, 249)
  if ids.err or #ids == 0 then
    redis.call('ZREM', key, worker)
  else
    local next_look = NOW + LATEST
    for j = 1, #ids do
      local v = redis.pcall('HMGET', prefix .. 'job:' .. ids[j], 'state', 'worker', 'fence', 'started_at',
        'timeout_ms', 'failures', 'max_attempts')
      if not v.err and v[1] == 'running' and v[2] == worker and v[3] then
        local allowed = tonumber(v[5]) or timeout_ms
        local ends_at = (tonumber(v[4]) or NOW) + allowed
        if allowed > 0 and ends_at <= NOW then
          runs[#runs + 1] = { worker, ids[j], v[3], v[6] or '', v[7] or '' }
          ends_at = NOW + SOON
        end
        if allowed > 0 then next_look = math.min(next_look, ends_at) end
      end
    end
    redis.call('ZADD', key, exact(next_look), worker)
  end
end
return { 'OK', #due >= limit and 1 or 0, runs }
