-- Bulk actions: `bulk:<id>` is one, `bulks` orders those that go on by their start, `bulks-ended` the last 100 that
-- do not, by their end.
local MOST_BULKS, KEPT_BULKS, BULK_MS = 20, 100, 604800000
local function read_bulk(bulk_id)
  local v = redis.pcall('HMGET', prefix .. 'bulk:' .. bulk_id, 'state', 'runner', 'runner_until', 'fence', 'step')
  if v.err or not v[1] then return nil end
  return { state = v[1], runner = v[2], runner_until = tonumber(v[3]) or 0, fence = tonumber(v[4]) or 0,
    step = tonumber(v[5]) or 0 }
end
local function end_bulk(bulk_id, state)
  local key = prefix .. 'bulk:' .. bulk_id
  redis.call('HSET', key, 'state', state, 'finished_at', NOW_MS)
  redis.call('PEXPIRE', key, BULK_MS)
  redis.pcall('ZREM', prefix .. 'bulks', bulk_id)
  if not readable_zset('bulks-ended') then return end
  redis.call('ZADD', prefix .. 'bulks-ended', NOW, bulk_id)
  local over = redis.call('ZCARD', prefix .. 'bulks-ended') - KEPT_BULKS
  local old = over > 0 and redis.call('ZRANGE', prefix .. 'bulks-ended', 0, over - 1) or {}
  for i = 1, #old do
    redis.call('ZREM', prefix .. 'bulks-ended', old[i])
    redis.call('DEL', prefix .. 'bulk:' .. old[i])
  end
end
