#!lua flags=allow-oom
-- snooze: running -> scheduled | cancelled
-- The job asked to run again later; nothing is burnt.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   worker       str
-- ITEMS  item         id str, fence str, delay_ms int
-- REPLY  per item     SCHEDULED | CANCELLED | STALE | GONE | BROKEN
-- REPLY  whole        BROKEN_KEY
-- @include _clock _config _stats _bulk _history _job _close _leave
local replies, adds, told = {}, {}, {}
if not readable_zset('scheduled') then return redis.error_reply('BROKEN_KEY scheduled') end
for i = 1, item_count do
  local id, fence, delay_ms = item(i)
  local job, why = leave(id, fence)
  if job and job.cancel and not can_close('cancelled') then
    why = 'BROKEN'
  elseif job and job.cancel then
    redis.call('LREM', list, 1, id)
    close(id, job, 'cancelled', { 'reason', job.cancel })
    why = 'CANCELLED'
    told[#told + 1] = id
  elseif job then
    local due = NOW + delay_ms + (i - 1) / 2048
    redis.call('LREM', list, 1, id)
    redis.call('HSET', prefix .. 'job:' .. id, 'state', 'scheduled', 'eligible_at', int_text(math.floor(due)))
    redis.call('HDEL', prefix .. 'job:' .. id, 'worker', 'call', 'score', 'started_at')
    history(id, 'snoozed', ',"worker":"' .. worker .. '","delay_ms":' .. int_text(delay_ms))
    adds[#adds + 1] = due
    adds[#adds + 1] = id
    why = 'SCHEDULED'
    told[#told + 1] = id
  end
  replies[i] = why
end
if #adds > 0 then bulk('ZADD', prefix .. 'scheduled', adds) end
flush_closed()
flush_stats()
tell('scheduled', told)
return replies
