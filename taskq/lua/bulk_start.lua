#!lua flags=allow-oom
-- bulk_start: writes a bulk action down
-- From here on any process may carry it out, page by page. `cutoff`, the time of its start, is its last say on
-- what it is about: what ends later is not its own, so that a job which fails again is not retried twice.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   bulk_id      str
-- ITEMS  fact         name str, value str
-- REPLY  OK | EXISTS | FULL | BROKEN_KEY
-- @include _clock _bulk _bulks
if not readable_zset('bulks') then return 'BROKEN_KEY' end
local key, fields = prefix .. 'bulk:' .. bulk_id, { 'state', 'running', 'cutoff', NOW_MS }
local known = redis.pcall('EXISTS', key)
if known == 1 then return 'EXISTS' end
if redis.call('ZCARD', prefix .. 'bulks') >= MOST_BULKS then return 'FULL' end
for i = 1, fact_count do
  local name, value = fact(i)
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
redis.call('HSET', key, unpack(fields))
redis.call('ZADD', prefix .. 'bulks', NOW, bulk_id)
return 'OK'
