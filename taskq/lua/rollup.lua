#!lua flags=allow-oom
-- rollup: sums finished minutes of counters
-- Moves no job. Ten minutes become one hash, which is written whole, so that doing it twice changes nothing. And
-- every finished minute is added once to `counters`, whose numbers never go down; there a type that has not been
-- counted for longest makes room.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- REPLY  ten-minute hashes written
-- @include _clock _minutes
local this = math.floor(NOW / 600000) * 10
local done = tonumber(redis.pcall('HGET', prefix .. 'ticks', 'rolled')) or 0
-- Minutes live for three hours: after a pause, or a jump of the clock, all that there still are.
if done > this or done < this - 170 then done = this - 170 end
local written = 0
while done < this and written < 12 do
  local sums, fields = {}, 0
  for minute = done, done + 9 do
    local _, new = add_minute(sums, minute)
    fields = fields + new
  end
  if fields > 0 then
    local key = prefix .. 'stats10:' .. int_text(done)
    for field, n in pairs(fold(sums, fields)) do redis.pcall('HSET', key, field, n) end
    redis.pcall('EXPIRE', key, 172800)
    written = written + 1
  end
  done = done + 10
end
redis.pcall('HSET', prefix .. 'ticks', 'rolled', done)

-- Drops the types that were counted last the longest ago, until three quarters of the room are used.
local function prune(key)
  local flat, by_type, seen, have = redis.call('HGETALL', key), {}, {}, 0
  for i = 1, #flat, 2 do
    local word, job_type = string.match(flat[i], '^([%a_]+):([^:]*)')
    if word == 'seen' then
      seen[#seen + 1] = { job_type, tonumber(flat[i + 1]) or 0 }
    elseif word then
      by_type[job_type] = by_type[job_type] or {}
      table.insert(by_type[job_type], flat[i])
    end
    have = have + 1
  end
  table.sort(seen, function(a, b) return a[2] < b[2] or (a[2] == b[2] and a[1] < b[1]) end)
  for i = 1, #seen do
    if have <= MOST_FIELDS * 3 / 4 then break end
    local fields = by_type[seen[i][1]] or {}
    fields[#fields + 1] = 'seen:' .. seen[i][1]
    for j = 1, #fields, 1000 do redis.call('HDEL', key, unpack(fields, j, math.min(j + 999, #fields))) end
    have = have - #fields
  end
end
local counters = prefix .. 'counters'
if type(redis.pcall('HLEN', counters)) == 'number' then
  local sums, to = open_minutes()
  local types = {}
  for field, n in pairs(sums) do
    redis.pcall('HINCRBY', counters, field, n)
    types[string.match(field, '^[%a_]+:([^:]*)') or ''] = true
  end
  types[''] = nil
  for job_type in pairs(types) do redis.call('HSET', counters, 'seen:' .. job_type, to) end
  redis.pcall('HSET', prefix .. 'ticks', 'counted', to)
  if redis.call('HLEN', counters) > MOST_FIELDS then prune(counters) end
end
return written
