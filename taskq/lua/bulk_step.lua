#!lua flags=allow-oom
-- bulk_step: a page of a bulk action is done
-- Its holder writes down what the page came to and where the next one begins. `step` numbers the pages, so that
-- the same report again counts once.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   bulk_id      str
-- ARGV   fence        int
-- ARGV   step         int
-- ARGV   cursor       str     where the next page begins
-- ARGV   looked       int
-- ARGV   matched      int
-- ARGV   done         int
-- ARGV   skipped      int
-- ARGV   last         flag    there is no next page
-- ARGV   lease_ms     int
-- REPLY  OK | STALE | ENDED | NOT_FOUND
-- @include _clock _bulk _bulks
local bulk_action = read_bulk(bulk_id)
if not bulk_action then return 'NOT_FOUND' end
if bulk_action.fence ~= fence or step > bulk_action.step + 1 then return 'STALE' end
local key = prefix .. 'bulk:' .. bulk_id
if step == bulk_action.step + 1 then
  redis.call('HSET', key, 'step', step, 'cursor', cursor)
  for name, n in pairs({ looked = looked, matched = matched, done = done, skipped = skipped }) do
    if n > 0 then redis.pcall('HINCRBY', key, name, n) end
  end
  if bulk_action.state == 'running' then
    if last then end_bulk(bulk_id, 'done') else redis.call('HSET', key, 'runner_until', int_text(NOW_MS + lease_ms)) end
  end
end
if bulk_action.state ~= 'running' or last then return 'ENDED' end
return 'OK'
