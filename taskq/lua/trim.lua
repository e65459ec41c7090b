#!lua flags=allow-oom
-- trim: succeeded | failed | cancelled -> (gone)
-- Retention by age, count and bytes, a page a call. `squeeze` drops early, oldest first, when memory is
-- short: 1 succeeded, 2 cancelled too, 3 failed too, 4 stubs too.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   limit        int     jobs of each state at most
-- ARGV   squeeze      int
-- REPLY  jobs dropped, stubs dropped, more (0 or 1)
-- @include _clock _config _stats _bulk _ended _trim
local dropped, stubs, more = 0, 0, 0
local ORDER = { 'succeeded', 'cancelled', 'failed' }
for i = 1, 3 do
  local n = trim(ORDER[i], limit, squeeze >= i)
  dropped = dropped + n
  if n == limit then more = 1 end
  if squeeze >= 4 then DEDUP_MS = 0 end
  local m = trim_stubs(ORDER[i], limit)
  stubs = stubs + m
  if m == limit then more = 1 end
end
if dropped > 0 then count('trimmed', dropped) end
-- From now on a repeat is recognised only if its job ended later.
if squeeze >= 4 then redis.pcall('HSET', prefix .. 'ticks', 'stubs_dropped_at', NOW_MS) end
if squeeze > 0 and dropped > 0 then count('trimmed_early', dropped) end
flush_stats()
return { dropped, stubs, more }
