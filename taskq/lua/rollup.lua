#!lua flags=allow-oom
-- rollup: sums ten finished minutes of counters into one hash
-- Moves no job. The sum is written whole, so that doing it twice changes nothing.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- REPLY  ten-minute hashes written
-- @include _clock
local this = math.floor(NOW / 600000) * 10
local done = tonumber(redis.pcall('HGET', prefix .. 'ticks', 'rolled')) or 0
-- Minutes live for three hours: after a pause, or a jump of the clock, all that there still are.
if done > this or done < this - 170 then done = this - 170 end
local written = 0
while done < this and written < 12 do
  local sums, any = {}, false
  for minute = done, done + 9 do
    local v = redis.pcall('HGETALL', prefix .. 'stats:' .. int_text(minute))
    if not v.err then
      for i = 1, #v, 2 do
        sums[v[i]] = (sums[v[i]] or 0) + (tonumber(v[i + 1]) or 0)
        any = true
      end
    end
  end
  if any then
    local key = prefix .. 'stats10:' .. int_text(done)
    for field, n in pairs(sums) do redis.pcall('HSET', key, field, n) end
    redis.pcall('EXPIRE', key, 172800)
    written = written + 1
  end
  done = done + 10
end
redis.pcall('HSET', prefix .. 'ticks', 'rolled', done)
return written
