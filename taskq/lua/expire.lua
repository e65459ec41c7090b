#!lua flags=allow-oom
-- expire: scheduled | queued | retrying -> failed
-- Ends waiting jobs whose `expires` has come, and drops results whose own time to live is over.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   limit        int     jobs at most
-- REPLY  jobs ended, results dropped, more (0 or 1)
-- REPLY  whole        BROKEN_KEY
-- @include _clock _config _stats _bulk _history _lines _job _ended _close _trim _errors
if not readable_zset('expiring') then return redis.error_reply('BROKEN_KEY expiring') end
local due = redis.call('ZRANGEBYSCORE', prefix .. 'expiring', '-inf', NOW, 'LIMIT', 0, limit)
local gone, ended, dropped = {}, 0, 0
local function put_off(id) redis.call('ZADD', prefix .. 'expiring', NOW + 60000, id) end
for i = 1, #due do
  local id = due[i]
  local job, why = read_job(id)
  if not job then
    gone[#gone + 1] = id
    if why == 'WRONGTYPE' then quarantine(id, 'expiring', 'not a hash') end
  elseif ends[job.state] then
    gone[#gone + 1] = id
    local finished = redis.pcall('ZSCORE', prefix .. job.state, id)
    if type(finished) == 'string' then
      forget(job.state, id, finished)
      dropped = dropped + 1
    end
  elseif job.state == 'running' then
    -- Its run decides; should it come back into a line, this is looked at again.
    put_off(id)
  else
    local line = job.state == 'queued' and 'ready:' .. job.type or job.state
    if can_close('failed') and readable_zset(line) then
      gone[#gone + 1] = id
      redis.call('ZREM', prefix .. line, id)
      if job.state == 'queued' then line_taken(job.type) end
      history(id, 'expired')
      local error = '{"type":"Expired","message":"expired before a worker took it"}'
      close(id, job, 'failed', { 'reason', 'expired', 'error', error, 'fingerprint',
        note_error(id, job.type, 'Expired', error, true) })
      ended = ended + 1
    else
      put_off(id)
    end
  end
end
if #gone > 0 then bulk('ZREM', prefix .. 'expiring', gone) end
flush_closed()
trim_grown(closed)
flush_errors()
flush_stats()
return { ended, dropped, #due == limit and 1 or 0 }
