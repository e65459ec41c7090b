#!lua flags=allow-oom
-- fail: running -> retrying | failed | cancelled
-- The lease holder reports that a run failed. The job retries after `delay_ms`, or is failed for good when
-- its failures reach `max_attempts` (0: at once), or cancelled when that was asked for meanwhile. The same
-- report again answers what became of it. `signature` is what failures of one kind have in common, `brief` the
-- error without its traceback.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   worker       str
-- ITEMS  item         id str, fence str, error json, delay_ms int, max_attempts int, signature str, brief json
-- REPLY  per item     RETRYING | FAILED | CANCELLED | STALE | GONE | BROKEN
-- REPLY  whole        BROKEN_KEY
-- @include _clock _config _stats _bulk _history _lines _due _job _ended _close _trim _errors _leave
local replies, retrying = {}, {}
if not readable_zset('retrying') then return redis.error_reply('BROKEN_KEY retrying') end
for i = 1, item_count do
  local id, fence, error, delay_ms, max_attempts, signature, brief = item(i)
  local job, why = leave(id, fence, 'failed')
  if not job then
    replies[i] = why
  else
    local failures = job.failures + 1
    local detail = ',"worker":"' .. worker .. '","failures":' .. int_text(failures) .. ',"error":' .. error
    if job.cancel and not can_close('cancelled') then
      replies[i] = 'BROKEN'
    elseif job.cancel then
      redis.call('LREM', list, 1, id)
      history(id, 'failed', detail)
      close(id, job, 'cancelled', { 'reason', job.cancel, 'failures', failures, 'error', error })
      replies[i] = 'CANCELLED'
    elseif failures >= max_attempts then
      if can_close('failed') then
        redis.call('LREM', list, 1, id)
        history(id, 'failed', detail)
        close(id, job, 'failed', { 'failures', failures, 'error', error, 'fingerprint',
          note_error(id, job.type, signature, brief, true) })
        replies[i] = 'FAILED'
      else
        replies[i] = 'BROKEN'
      end
    else
      local due = NOW + delay_ms + (i - 1) / 2048
      redis.call('LREM', list, 1, id)
      redis.call('HSET', prefix .. 'job:' .. id, 'state', 'retrying', 'failures', failures, 'error', error,
        'eligible_at', int_text(math.floor(due)), 'left', fence .. ' failed', 'fingerprint',
        note_error(id, job.type, signature, brief, false))
      redis.call('HDEL', prefix .. 'job:' .. id, 'call', 'score')
      history(id, 'failed', detail .. ',"retry_in_ms":' .. int_text(delay_ms))
      expiry_counts(id, job)
      became(id, 'retrying', job.type)
      count('retrying:' .. job.type, 1)
      retrying[#retrying + 1] = due
      retrying[#retrying + 1] = id
      replies[i] = 'RETRYING'
    end
    if replies[i] ~= 'BROKEN' then
      count('raised:' .. job.type, 1)
      count_duration('run', job.type, NOW - (job.started_at or NOW))
      count_duration('wait', job.type, (job.started_at or NOW) - (job.eligible_at or NOW))
    end
  end
end
due_add('retrying', retrying)
flush_closed()
trim_grown(closed)
flush_errors()
flush_stats()
return replies
