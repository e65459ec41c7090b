#!lua flags=allow-oom
-- finish: running -> succeeded
-- The lease holder reports results; for an item that is no longer its own nothing changes and the answer
-- says why. The same report again answers OK. Trims about as many old jobs as it ends: in a big set not
-- with every call, but when it has grown by another STEP.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   worker       str
-- ITEMS  item         id str, fence str, result bytes, ttl_ms str, keep flag
-- REPLY  per item     OK | STALE | WRONG_STATE | GONE | BROKEN
-- REPLY  whole        BROKEN_KEY
-- @include _clock _config _stats _bulk _ended _trim
local list = prefix .. 'processing:' .. worker
local length = redis.pcall('LLEN', list)
if type(length) ~= 'number' then return redis.error_reply('BROKEN_KEY processing') end
local have = redis.pcall('ZCARD', prefix .. 'succeeded')
if type(have) ~= 'number' then return redis.error_reply('BROKEN_KEY succeeded') end
local STEP = have > 500 and 16 or 1
local replies, adds, done, done_types, stubs, dropped = {}, {}, {}, {}, {}, {}
for i = 1, item_count do
  local id, fence, result, ttl_ms, keep = item(i)
  local key = prefix .. 'job:' .. id
  local v = redis.pcall('HMGET', key, 'state', 'worker', 'fence', 'type', 'started_at', 'eligible_at', 'created_at',
    'unique', 'expires_at', 'watched', 'cancel', 'digest', 'result_ttl_ms', 'keep_payload')
  if v.err then
    replies[i] = 'BROKEN'
  elseif not v[1] then
    replies[i] = (dropped[id] or stub_of(id) == 'succeeded') and 'OK' or 'GONE'
  elseif v[3] ~= fence or v[2] ~= worker then
    replies[i] = (v[1] == 'succeeded' and v[3] == fence) and 'OK' or 'STALE'
    if replies[i] == 'STALE' then count('fenced_out', 1) end
  elseif v[1] ~= 'running' then
    replies[i] = v[1] == 'succeeded' and 'OK' or 'WRONG_STATE'
  else
    replies[i] = 'OK'
    done[#done + 1] = id
    local ttl = tonumber(v[13]) or tonumber(ttl_ms)
    if v[8] and redis.pcall('GET', prefix .. 'unique:' .. v[8]) == id then
      redis.call('DEL', prefix .. 'unique:' .. v[8])
    end
    if v[9] then redis.pcall('ZREM', prefix .. 'expiring', id) end
    if v[11] then redis.pcall('SREM', prefix .. 'cancelling', id) end
    local job_type = v[4] or ''
    done_types[#done] = job_type
    count('succeeded:' .. job_type, 1)
    local started = tonumber(v[5]) or NOW
    count_duration('run', job_type, NOW - started)
    count_duration('wait', job_type, started - (tonumber(v[6]) or tonumber(v[7]) or NOW))
    if ttl == 0 then
      stubs[#stubs + 1] = NOW
      stubs[#stubs + 1] = id
      dropped[id] = true
      redis.call('DEL', key, prefix .. 'history:' .. id, prefix .. 'log:' .. id)
      if v[12] then
        keep_digest('succeeded', key, NOW, v[12], fence)
      end
    else
      local size = #result
      -- A payload that is kept counts too.
      if keep or v[14] then size = size + redis.call('HSTRLEN', key, 'payload') end
      if size > 1024 then
        redis.call('HSET', key, 'size', size)
        redis.pcall('HINCRBY', prefix .. 'totals', 'bytes:succeeded', size)
      end
      if keep or v[14] then
        redis.call('HDEL', key, 'score', 'call', 'cancel', 'error', 'fingerprint')
      else
        redis.call('HDEL', key, 'payload', 'score', 'call', 'cancel', 'error', 'fingerprint')
      end
      if result == 'null' then
        redis.call('HSET', key, 'state', 'succeeded', 'finished_at', NOW_MS)
      else
        redis.call('HSET', key, 'state', 'succeeded', 'finished_at', NOW_MS, 'result', result)
      end
      -- Apart from its neighbours in the call, so that a page can go on after any of them.
      adds[#adds + 1] = NOW + #adds / 4096
      adds[#adds + 1] = id
      if ttl then redis.pcall('ZADD', prefix .. 'expiring', NOW + ttl, id) end
    end
    if v[10] then redis.call('PUBLISH', prefix .. 'done:' .. id, 'succeeded') end
  end
end
-- Out of the worker's list: one by one, or what stays is written anew where most of it goes.
if #done < 8 or #done * 4 < length then
  for i = 1, #done do redis.call('LREM', list, 1, done[i]) end
else
  local ended, rest = {}, {}
  for i = 1, #done do ended[done[i]] = true end
  local ids = redis.call('LRANGE', list, 0, -1)
  for i = 1, #ids do if not ended[ids[i]] then rest[#rest + 1] = ids[i] end end
  redis.call('DEL', list)
  bulk('RPUSH', list, rest)
end
local trims = #stubs > 0
if #adds > 0 then
  bulk('ZADD', prefix .. 'succeeded', adds)
  trims = math.floor((have + #adds / 2) / STEP) > math.floor(have / STEP)
  if trims then trim('succeeded', #adds / 2 + STEP, false) end
end
if #stubs > 0 and readable_zset('stubs:succeeded') then bulk('ZADD', prefix .. 'stubs:succeeded', stubs) end
if trims then trim_stubs('succeeded', #done + STEP) end
flush_stats()
tell('succeeded', done, done_types)
return replies
