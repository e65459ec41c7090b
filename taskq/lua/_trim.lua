-- Retention. A job that is no longer kept leaves a stub (its id, and the digest of its body where it has
-- one), so that a late repeat of its submission is still recognised for dedup_seconds.
local RETENTION = { succeeded = { 86400, 100000, 268435456 }, failed = { 2592000, 100000, 268435456 },
  cancelled = { 86400, 10000, 67108864 } }
-- A job of the usual size is counted as 500 bytes; what is bigger is kept in `totals`.
local USUAL = 500
-- The keys that go are collected in `names` for one DEL of the caller's, or dropped here without it.
local function strip(state, id, finished, marked, now_ms, names)
  local key = prefix .. 'job:' .. id
  local digest = false
  if marked > 0 then
    local v = redis.pcall('HMGET', key, 'digest', 'size', 'fence')
    if not v.err then
      digest = v[1]
      if v[1] or v[2] then redis.pcall('HINCRBY', prefix .. 'totals', 'marked:' .. state, -1) end
      if v[2] then redis.pcall('HINCRBY', prefix .. 'totals', 'bytes:' .. state, -(tonumber(v[2]) or 0)) end
      if digest and finished > now_ms - DEDUP_MS then
        redis.call('DEL', key, prefix .. 'history:' .. id, prefix .. 'log:' .. id)
        redis.call('HSET', key, 'state', state, 'finished_at', int_text(math.floor(finished)), 'digest', digest,
          'fence', v[3] or '0', 'stub', '1')
        return
      end
    end
  end
  if not names then
    redis.call('DEL', key, prefix .. 'history:' .. id, prefix .. 'log:' .. id)
    return
  end
  names[#names + 1] = key
  names[#names + 1] = prefix .. 'history:' .. id
  names[#names + 1] = prefix .. 'log:' .. id
end
local function drop(names)
  for from = 1, #names, 2000 do redis.call('DEL', unpack(names, from, math.min(from + 1999, #names))) end
end
local function trim_stubs(state, budget)
  local key = prefix .. 'stubs:' .. state
  local have = redis.pcall('ZCARD', key)
  if type(have) ~= 'number' or have == 0 then return 0 end
  local old = redis.call('ZRANGE', key, 0, budget - 1, 'WITHSCORES')
  local n, names = 0, {}
  for i = 1, #old, 2 do
    if tonumber(old[i + 1]) >= NOW - DEDUP_MS and have - n <= DEDUP_MAX then break end
    n = n + 1
    names[n] = prefix .. 'job:' .. old[i]
  end
  if n > 0 then
    redis.call('ZREMRANGEBYRANK', key, 0, n - 1)
    drop(names)
  end
  return n
end
-- Strips at most `budget` of the oldest of one state; `squeeze` strips whether due or not.
local function trim(state, budget, squeeze)
  local key = prefix .. state
  local have = redis.pcall('ZCARD', key)
  if type(have) ~= 'number' or have == 0 then return 0 end
  local limits = RETENTION[state]
  local v = redis.pcall('HMGET', prefix .. 'config', state .. '_seconds', state .. '_max', state .. '_bytes')
  local t = redis.pcall('HMGET', prefix .. 'totals', 'bytes:' .. state, 'marked:' .. state)
  local seconds, most, bytes = tonumber(v[1]) or limits[1], tonumber(v[2]) or limits[2], tonumber(v[3]) or limits[3]
  local big, marked = tonumber(t[1]) or 0, tonumber(t[2]) or 0
  local oldest = redis.call('ZRANGE', key, 0, budget - 1, 'WITHSCORES')
  local n, stubs, names = 0, {}, {}
  for i = 1, #oldest, 2 do
    local id, finished = oldest[i], tonumber(oldest[i + 1])
    local over = have - n > most or (have - n) * USUAL + big > bytes
    if not (over or squeeze or finished < NOW - seconds * 1000) then break end
    n = n + 1
    strip(state, id, finished, marked, NOW, names)
    if big > 0 then big = tonumber(redis.pcall('HGET', prefix .. 'totals', 'bytes:' .. state)) or 0 end
    if finished > NOW - DEDUP_MS then
      stubs[#stubs + 1] = oldest[i + 1]
      stubs[#stubs + 1] = id
    end
  end
  if n > 0 then
    drop(names)
    redis.call('ZREMRANGEBYRANK', key, 0, n - 1)
    if #stubs > 0 and readable_zset('stubs:' .. state) then bulk('ZADD', prefix .. 'stubs:' .. state, stubs) end
  end
  return n
end
