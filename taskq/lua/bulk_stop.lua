#!lua flags=allow-oom
-- bulk_stop: no further page
-- Ends a bulk action where it is; the page that is under way is still done and counted.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   bulk_id      str
-- ARGV   ended_as     str     stopped, or failed
-- ARGV   why          str     what kept it from going on; ''
-- REPLY  OK | ENDED | NOT_FOUND
-- @include _clock _bulk _bulks
local bulk_action = read_bulk(bulk_id)
if not bulk_action then return 'NOT_FOUND' end
if bulk_action.state ~= 'running' then return 'ENDED' end
if why ~= '' then redis.call('HSET', prefix .. 'bulk:' .. bulk_id, 'error', why) end
end_bulk(bulk_id, ended_as)
return 'OK'
