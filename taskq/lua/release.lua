#!lua flags=allow-oom
-- release: running -> queued | cancelled
-- Hands jobs back at their old place without burning anything: a stop, or a claim that cannot be used. The
-- same hand-back again answers what became of it.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   worker       str
-- ARGV   reason       str     a word for the history
-- ITEMS  item         id str, fence str
-- REPLY  per item     QUEUED | CANCELLED | STALE | GONE | BROKEN
-- REPLY  whole        BROKEN_KEY
-- @include _clock _config _stats _bulk _history _lines _job _close _requeue _leave
local replies = {}
for i = 1, item_count do
  local id, fence = item(i)
  local job, why = leave(id, fence, 'released')
  if job then
    why = requeue(id, job, 'released', ',"worker":"' .. worker .. '","reason":"' .. reason .. '"',
      { 'left', fence .. ' released' }) or 'BROKEN'
    if why ~= 'BROKEN' then redis.call('LREM', list, 1, id) end
  end
  replies[i] = why
end
flush_lines()
flush_closed()
flush_stats()
return replies
