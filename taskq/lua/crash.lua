#!lua flags=allow-oom
-- crash: running -> queued | failed | cancelled
-- The lease holder reports that a run's own process died. The job goes back in line at its old place, or is
-- failed for good when its crashes reach `max_crashes`, or cancelled when that was asked for meanwhile. The
-- same report again answers what became of it.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   worker       str
-- ARGV   max_crashes  int
-- ITEMS  item         id str, fence str, reason str
-- REPLY  per item     QUEUED | FAILED | CANCELLED | STALE | GONE | BROKEN
-- REPLY  whole        BROKEN_KEY
-- @include _clock _config _stats _bulk _history _lines _job _ended _close _requeue _trim _errors _leave
local replies = {}
for i = 1, item_count do
  local id, fence, reason = item(i)
  local job, why = leave(id, fence, 'crashed')
  if not job then
    replies[i] = why
  else
    local crashes = job.crashes + 1
    local extra = ',"worker":"' .. worker .. '","crashes":' .. int_text(crashes) .. ',"reason":"' .. reason .. '"'
    local outcome
    if crashes >= max_crashes and not job.cancel then
      if can_close('failed') then
        history(id, 'crashed', extra)
        local error = '{"type":"WorkerCrashed","message":"' .. reason .. ', ' .. int_text(crashes) .. ' times"}'
        close(id, job, 'failed', { 'crashes', crashes, 'error', error, 'fingerprint',
          note_error(id, job.type, 'WorkerCrashed: ' .. reason, error, true) })
        outcome = 'FAILED'
      end
    else
      outcome = requeue(id, job, 'crashed', extra, { 'crashes', crashes, 'left', fence .. ' crashed' })
    end
    if outcome then
      redis.call('LREM', list, 1, id)
      count('crashes:' .. job.type, 1)
    end
    replies[i] = outcome or 'BROKEN'
  end
end
flush_lines()
flush_closed()
trim_grown(closed)
flush_errors()
flush_stats()
return replies
