#!lua flags=allow-oom
-- retry: failed -> queued
-- Takes dead letters back into their line, with a clean count of failures, crashes and losses. `fence`
-- names the run that was seen to fail, so that a late repeat does not retry a job that failed again.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ITEMS  item         id str, fence str
-- REPLY  per item     QUEUED | STALE | WRONG_STATE | UNIQUE | NOT_FOUND | BROKEN
-- REPLY  whole        BROKEN_KEY
-- @include _clock _config _stats _bulk _history _lines _job _ended
local replies, gone = {}, {}
if not readable_zset('failed') then return redis.error_reply('BROKEN_KEY failed') end
local function again(i, id, fence)
  local job, why = read_job(id)
  if not job then return why == 'MISSING' and 'NOT_FOUND' or 'BROKEN' end
  if fence ~= '' and (job.fence or '') ~= fence then return 'STALE' end
  if job.state ~= 'failed' then return { 'WRONG_STATE', job.state } end
  if redis.pcall('HEXISTS', prefix .. 'job:' .. id, 'stub') == 1 then return 'NOT_FOUND' end
  if not line_depth(job.type) then return 'BROKEN' end
  if job.unique then
    local key = prefix .. 'unique:' .. job.unique
    local holder = redis.pcall('GET', key)
    if type(holder) == 'string' and holder ~= id then
      local state = redis.pcall('HGET', prefix .. 'job:' .. holder, 'state')
      if type(state) == 'string' and not ends[state] then return { 'UNIQUE', holder } end
    end
    redis.call('SET', key, id)
  end
  local key = prefix .. 'job:' .. id
  local size = tonumber(redis.call('HGET', key, 'size') or nil)
  if size then redis.pcall('HINCRBY', prefix .. 'totals', 'bytes:failed', -size) end
  redis.call('HSET', key, 'state', 'queued', 'eligible_at', NOW_MS)
  redis.call('HDEL', key, 'failures', 'crashes', 'lost', 'finished_at', 'reason', 'worker', 'call', 'score', 'started_at',
    'expires_at', 'size')
  history(id, 'retried')
  gone[#gone + 1] = id
  line_add(job.type, id, line_score(NOW + (i - 1) / 2048, job.priority))
  return 'QUEUED'
end
for i = 1, item_count do
  local id, fence = item(i)
  replies[i] = again(i, id, fence)
end
if #gone > 0 then bulk('ZREM', prefix .. 'failed', gone) end
flush_lines()
if #gone > 0 then count('retried', #gone) end
flush_stats()
return replies
