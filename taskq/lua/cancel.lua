#!lua flags=allow-oom
-- cancel: scheduled | blocked | queued | retrying -> cancelled
-- A running job is asked to stop: the wish stands in the job and in `cancelling`, wins over retry and
-- recovery, and a nudge makes its worker look now. An ended job answers its state. With `waiting_only` a job
-- that runs by now is left alone.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   reason       str     a word kept with the job
-- ARGV   waiting_only flag
-- ITEMS  item         id str
-- REPLY  per item     CANCELLED | CANCELLING | RUNNING | ENDED | NOT_FOUND | BROKEN
-- @include _clock _config _stats _bulk _history _lines _job _ended _close _trim
local replies, asked, asked_types = {}, {}, {}
for i = 1, item_count do
  local id = item(i)
  local job, why = read_job(id)
  if not job then
    local state = stub_of(id)
    replies[i] = state and { 'ENDED', state } or why == 'MISSING' and 'NOT_FOUND' or 'BROKEN'
  elseif ends[job.state] then
    replies[i] = { 'ENDED', job.state }
  elseif job.state == 'running' and waiting_only then
    replies[i] = 'RUNNING'
  elseif job.state == 'running' then
    local set = redis.pcall('SADD', prefix .. 'cancelling', id)
    if type(set) ~= 'number' then
      replies[i] = 'BROKEN'
    else
      if not job.cancel then
        redis.call('HSET', prefix .. 'job:' .. id, 'cancel', reason)
        history(id, 'cancel asked')
        asked[#asked + 1] = id
        asked_types[#asked] = job.type
      end
      local control = prefix .. 'control:' .. (job.worker or '')
      if redis.pcall('LLEN', control) == 0 then
        redis.call('LPUSH', control, 'beat')
        redis.call('EXPIRE', control, 60)
      end
      replies[i] = 'CANCELLING'
    end
  else
    local line = job.state == 'queued' and 'ready:' .. job.type or job.state
    if not (can_close('cancelled') and readable_zset(line)) then
      replies[i] = 'BROKEN'
    else
      redis.call('ZREM', prefix .. line, id)
      if job.state == 'queued' then line_taken(job.type) end
      history(id, 'cancelled')
      close(id, job, 'cancelled', { 'reason', reason })
      replies[i] = 'CANCELLED'
    end
  end
end
flush_closed()
trim_grown(closed)
flush_stats()
tell('cancelling', asked, asked_types)
return replies
