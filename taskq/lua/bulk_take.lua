#!lua flags=allow-oom
-- bulk_take: one runner at a time
-- Gives a bulk action to a runner for `lease_ms`, under a new fence; the runner that has it keeps its own. One
-- that has died is followed by the next that asks.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   bulk_id      str
-- ARGV   runner       str
-- ARGV   lease_ms     int
-- REPLY  fields of the action, or ENDED | HELD | NOT_FOUND
-- @include _clock _bulk _bulks
local bulk_action = read_bulk(bulk_id)
if not bulk_action then
  redis.pcall('ZREM', prefix .. 'bulks', bulk_id)
  return 'NOT_FOUND'
end
if bulk_action.state ~= 'running' then return 'ENDED' end
local key = prefix .. 'bulk:' .. bulk_id
-- A lease further ahead than its own length was given before the clock went back.
local held = bulk_action.runner_until > NOW and bulk_action.runner_until <= NOW + lease_ms + 1
if held and bulk_action.runner ~= runner then return 'HELD' end
local fence = bulk_action.fence
if not held then fence = math.max(fence + 1, NOW_MS) end
redis.call('HSET', key, 'runner', runner, 'runner_until', int_text(NOW_MS + lease_ms), 'fence', int_text(fence))
return redis.call('HGETALL', key)
