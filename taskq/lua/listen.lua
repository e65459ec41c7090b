#!lua flags=allow-oom
-- listen: asks that events be written for a while
-- Moves no job and wakes nobody. Where nobody listened until now, or the stream is gone, an entry `listening` is
-- written first: a reader that meets it knows that moves before it may not have been told. Answers the last id of
-- the stream: from there on all that happens is told, for as long as this is sent again in time.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   for_ms       int     how long; all callers say the same
-- REPLY  id of the last entry
-- REPLY  whole        BROKEN_KEY
-- @include _clock _config
local config, events = prefix .. 'config', prefix .. 'events'
if type(redis.pcall('HLEN', config)) ~= 'number' then return redis.error_reply('BROKEN_KEY config') end
local length = redis.pcall('XLEN', events)
if type(length) ~= 'number' then return redis.error_reply('BROKEN_KEY events') end
if length == 0 or not LISTENED then
  redis.call('XADD', events, '*', 'event', 'listening', 'count', 0, 'jobs', '', 'types', '')
end
redis.call('HSET', config, 'listen_until', int_text(NOW_MS + for_ms))
-- Told for nobody any more: the stream goes by itself.
redis.call('PEXPIRE', events, for_ms + 600000)
return redis.call('XREVRANGE', events, '+', '-', 'COUNT', 1)[1][1]
