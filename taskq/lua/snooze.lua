#!lua flags=allow-oom
-- snooze: running -> scheduled | cancelled
-- The job asked to run again later; nothing is burnt. The same report again answers what became of it.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   worker       str
-- ITEMS  item         id str, fence str, delay_ms int
-- REPLY  per item     SCHEDULED | CANCELLED | STALE | GONE | BROKEN
-- REPLY  whole        BROKEN_KEY
-- @include _clock _config _stats _bulk _history _lines _due _job _close _leave
local replies, adds = {}, {}
if not readable_zset('scheduled') then return redis.error_reply('BROKEN_KEY scheduled') end
for i = 1, item_count do
  local id, fence, delay_ms = item(i)
  local job, why = leave(id, fence, 'snoozed')
  if job and job.cancel and not can_close('cancelled') then
    why = 'BROKEN'
  elseif job and job.cancel then
    redis.call('LREM', list, 1, id)
    history(id, 'cancelled')
    close(id, job, 'cancelled', { 'reason', job.cancel })
    why = 'CANCELLED'
  elseif job then
    local due = NOW + delay_ms + (i - 1) / 2048
    redis.call('LREM', list, 1, id)
    redis.call('HSET', prefix .. 'job:' .. id, 'state', 'scheduled', 'eligible_at', int_text(math.floor(due)),
      'left', fence .. ' snoozed')
    redis.call('HDEL', prefix .. 'job:' .. id, 'worker', 'call', 'score', 'started_at')
    expiry_counts(id, job)
    became(id, 'scheduled', job.type)
    history(id, 'snoozed', ',"worker":"' .. worker .. '","delay_ms":' .. int_text(delay_ms))
    adds[#adds + 1] = due
    adds[#adds + 1] = id
    why = 'SCHEDULED'
  end
  replies[i] = why
end
due_add('scheduled', adds)
flush_closed()
flush_stats()
return replies
