-- Ends a job: one place for all that every terminal state has to give back.
-- can_close() is the check before the write. `fields` are hash fields to set besides.
local closed = { succeeded = {}, failed = {}, cancelled = {} }
local closable = {}
local function can_close(state)
  if closable[state] == nil then closable[state] = readable_zset(state) end
  return closable[state]
end
local function give_back(id, job)
  if job.unique and redis.pcall('GET', prefix .. 'unique:' .. job.unique) == id then
    redis.call('DEL', prefix .. 'unique:' .. job.unique)
  end
  if job.expires_at then redis.pcall('ZREM', prefix .. 'expiring', id) end
  if job.cancel then redis.pcall('SREM', prefix .. 'cancelling', id) end
end
local function close(id, job, state, fields)
  local key = prefix .. 'job:' .. id
  fields[#fields + 1] = 'state'
  fields[#fields + 1] = state
  fields[#fields + 1] = 'finished_at'
  fields[#fields + 1] = NOW_MS
  redis.call('HSET', key, unpack(fields))
  redis.call('HDEL', key, 'score', 'call', 'cancel')
  give_back(id, job)
  -- The payload stays, for a retry or a look: what is big counts towards the bytes of its state.
  local size = redis.call('HSTRLEN', key, 'payload')
  if size > 1024 then
    redis.call('HSET', key, 'size', size)
    redis.pcall('HINCRBY', prefix .. 'totals', 'bytes:' .. state, size)
  end
  became(id, state, job.type)
  if job.watched then redis.call('PUBLISH', prefix .. 'done:' .. id, state) end
  local adds = closed[state]
  -- Apart from its neighbours in the call, so that a page can go on after any of them.
  adds[#adds + 1] = NOW + #adds / 4096
  adds[#adds + 1] = id
  count(state .. ':' .. job.type, 1)
end
local function flush_closed()
  for state, adds in pairs(closed) do
    if #adds > 0 then bulk('ZADD', prefix .. state, adds) end
  end
end
