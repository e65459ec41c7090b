#!lua flags=allow-oom
-- settle: what becomes of a lease's claim
-- Moves no job. The first word stands: `answered` (the client is told of its jobs) or `closed` (they go back,
-- since nobody is there to be told). So of two requests with one idempotency key, of which one lost its
-- client, neither takes the jobs from the other. An answered lease is looked at when its first run may be
-- past its time (see overdue).
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   record       str
-- ARGV   word         str     answered or closed
-- ARGV   look_at      int     ms, of the server's clock
-- ARGV   keep_ms      int
-- REPLY  whole        ANSWERED | CLOSED | GONE | BROKEN_KEY
-- @include _clock _bulk
local name = prefix .. 'lease:' .. record
local v = redis.pcall('HMGET', name, 'worker', 'claim', 'key')
if v.err then return { 'BROKEN_KEY', 'lease' } end
if not v[1] then return { 'GONE' } end
local stands = v[2] or word
if stands == 'answered' and not readable_zset('deadlines') then return { 'BROKEN_KEY', 'deadlines' } end
if not v[2] then
  redis.call('HSET', name, 'claim', word)
  redis.call('PEXPIRE', name, keep_ms)
  if v[3] and v[3] ~= '' then redis.call('PEXPIRE', prefix .. 'lease-key:' .. v[3], keep_ms) end
end
if stands ~= 'answered' then return { 'CLOSED' } end
if word == 'answered' then redis.call('ZADD', prefix .. 'deadlines', look_at, v[1]) end
return { 'ANSWERED' }
