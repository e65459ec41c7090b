-- Retention. A job that is no longer kept leaves a stub (its id, and the digest of its body where it has
-- one), so that a late repeat of its submission is still recognised for dedup_seconds.
local RETENTION = { succeeded = { 86400, 100000, 268435456 }, failed = { 2592000, 100000, 268435456 },
  cancelled = { 86400, 10000, 67108864 } }
-- A job of the usual size is counted as 500 bytes; what is bigger is kept in `totals`.
local USUAL = 500
local function drop(names)
  for from = 1, #names, 2000 do redis.call('DEL', unpack(names, from, math.min(from + 1999, #names))) end
end
-- What stays of a job that goes: its digest. Counted, so that no stub is looked for where there is none.
local function keep_digest(state, key, finished, digest, fence)
  redis.call('HSET', key, 'state', state, 'finished_at', int_text(math.floor(finished)), 'digest', digest,
    'fence', fence, 'stub', '1')
  redis.pcall('HINCRBY', prefix .. 'totals', 'digests', 1)
end
-- The keys that go are collected in `names`. False where the hash is another state's: then all of it stays,
-- since a member that does not belong into the set must not cost a live job.
local function strip(state, id, finished, names)
  local key = prefix .. 'job:' .. id
  local v = redis.pcall('HMGET', key, 'state', 'digest', 'size', 'fence')
  if not v.err then
    if v[1] and v[1] ~= state then return false end
    if v[3] then redis.pcall('HINCRBY', prefix .. 'totals', 'bytes:' .. state, -(tonumber(v[3]) or 0)) end
  end
  names[#names + 1] = prefix .. 'history:' .. id
  names[#names + 1] = prefix .. 'log:' .. id
  if v[2] and finished > NOW - DEDUP_MS then
    redis.call('DEL', key)
    keep_digest(state, key, finished, v[2], v[4] or '0')
  else
    names[#names + 1] = key
  end
  return true
end
-- One ended job goes before its time is over: by delete, or when its own time to live is.
local function forget(state, id, finished)
  local names = {}
  redis.call('ZREM', prefix .. state, id)
  if not strip(state, id, tonumber(finished), names) then return false end
  drop(names)
  if readable_zset('stubs:' .. state) then redis.call('ZADD', prefix .. 'stubs:' .. state, finished, id) end
  return true
end
local function trim_stubs(state, budget)
  local key = prefix .. 'stubs:' .. state
  local have = redis.pcall('ZCARD', key)
  if type(have) ~= 'number' or have == 0 then return 0 end
  local old = redis.call('ZRANGE', key, 0, budget - 1, 'WITHSCORES')
  local n = 0
  for i = 1, #old, 2 do
    if tonumber(old[i + 1]) >= NOW - DEDUP_MS and have - n <= DEDUP_MAX then break end
    n = n + 1
  end
  if n > 0 then
    redis.call('ZREMRANGEBYRANK', key, 0, n - 1)
    -- An id may have been stored anew since: only what is a stub goes.
    local names = {}
    if (tonumber(redis.pcall('HGET', prefix .. 'totals', 'digests')) or 0) > 0 then
      for i = 1, 2 * n, 2 do
        local name = prefix .. 'job:' .. old[i]
        if redis.pcall('HGET', name, 'stub') == '1' then names[#names + 1] = name end
      end
    end
    if #names > 0 then
      drop(names)
      redis.pcall('HINCRBY', prefix .. 'totals', 'digests', -#names)
    end
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
  local seconds, most, bytes = tonumber(v[1]) or limits[1], tonumber(v[2]) or limits[2], tonumber(v[3]) or limits[3]
  local big = tonumber(redis.pcall('HGET', prefix .. 'totals', 'bytes:' .. state)) or 0
  local oldest = redis.call('ZRANGE', key, 0, budget - 1, 'WITHSCORES')
  local n, stubs, names, gone = 0, {}, {}, {}
  for i = 1, #oldest, 2 do
    local id, finished = oldest[i], tonumber(oldest[i + 1])
    local over = have - n > most or (have - n) * USUAL + big > bytes
    if not (over or squeeze or finished < NOW - seconds * 1000) then break end
    n = n + 1
    gone[n] = id
    local stripped = strip(state, id, finished, names)
    if big > 0 then big = tonumber(redis.pcall('HGET', prefix .. 'totals', 'bytes:' .. state)) or 0 end
    if stripped and finished > NOW - DEDUP_MS then
      stubs[#stubs + 1] = oldest[i + 1]
      stubs[#stubs + 1] = id
    end
  end
  if n > 0 then
    drop(names)
    redis.call('ZREMRANGEBYRANK', key, 0, n - 1)
    -- Results that had a time to live of their own.
    local timed = redis.pcall('ZCARD', prefix .. 'expiring')
    if type(timed) == 'number' and timed > 0 then bulk('ZREM', prefix .. 'expiring', gone) end
    if #stubs > 0 and readable_zset('stubs:' .. state) then bulk('ZADD', prefix .. 'stubs:' .. state, stubs) end
  end
  return n
end
-- After a call that ended jobs: each set that grew gives up about as many.
local function trim_grown(grown)
  for i = 1, 3 do
    local n = #grown[ENDED[i]] / 2
    if n > 0 then
      trim(ENDED[i], n + 1, false)
      trim_stubs(ENDED[i], n + 1)
    end
  end
end
