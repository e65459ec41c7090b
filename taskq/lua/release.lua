#!lua flags=allow-oom
-- release: running -> queued | cancelled
-- Hands jobs back at their old place without burning anything: a stop, or a claim that cannot be used.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   worker       str
-- ARGV   reason       str     a word for the history
-- ITEMS  item         id str, fence str
-- REPLY  per item     QUEUED | CANCELLED | STALE | GONE | BROKEN
-- REPLY  whole        BROKEN_KEY
-- @include _clock _config _stats _bulk _history _lines _job _close _requeue _leave
local replies, told = {}, {}
for i = 1, item_count do
  local id, fence = item(i)
  local job, why = leave(id, fence)
  if job then
    why = requeue(id, job, 'released', ',"worker":"' .. worker .. '","reason":"' .. reason .. '"', {}) or 'BROKEN'
    if why ~= 'BROKEN' then
      redis.call('LREM', list, 1, id)
      told[#told + 1] = id
    end
  end
  replies[i] = why
end
flush_lines()
flush_closed()
flush_stats()
tell('queued', told)
return replies
