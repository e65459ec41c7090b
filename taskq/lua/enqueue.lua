#!lua
-- enqueue: (new) -> queued | scheduled
-- Stores jobs and puts them in line. An id that is known already answers its state and changes nothing,
-- so a submission may be repeated for as long as the job or its stub is kept. At most 1,000 types may wait
-- in line, and as many for their time. Carries no allow-oom: with memory full it is refused before its first
-- write.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ITEMS  item         id str, job_type str, payload bytes, priority int, options json
-- REPLY  per item     QUEUED | SCHEDULED | EXISTS | CONFLICT | UNIQUE | FULL | TOO_MANY_TYPES | EXPIRED | BROKEN_KEY
-- @include _clock _config _stats _bulk _lines _due _types _ended _later
local max_depth, depth = tonumber(CONFIG[4]) or 0, 0
if max_depth > 0 then
  local types = waiting_types()
  for i = 1, #types do depth = depth + (line_depth(types[i]) or 0) end
  for _, name in ipairs({ 'scheduled', 'retrying', 'blocked' }) do
    local n = redis.pcall('ZCARD', prefix .. name)
    if type(n) == 'number' then depth = depth + n end
  end
end

-- Whether the id is known: its state, or nil; false where the key is not a hash.
local function known(key, id, options)
  local v = redis.pcall('HMGET', key, 'state', 'digest')
  if v.err then return false end
  if v[1] then return v[1], v[2] end
  -- Only a repeat, or an id made from a key, can meet a stub: a fresh ULID is new by construction.
  if options.check then return (stub_of(id)) end
  return nil
end

local function type_allowed(job_type, have)
  if have > 0 or additions[job_type] then return true end
  return count_lines() + #added_types < 1000 or redis.call('SISMEMBER', prefix .. 'lines', job_type) == 1
end

-- The types of delayed jobs: how many there were, and those of this call with the last due time of each.
local later_have, later_new, later_due, later_known = nil, 0, {}, {}
local function later_allowed(job_type, have)
  if not later_have then
    later_have = redis.call('ZCARD', prefix .. 'later')
    if later_have >= 1000 then
      prune_later()
      later_have = redis.call('ZCARD', prefix .. 'later')
    end
  end
  if later_due[job_type] then return true end
  later_known[job_type] = redis.call('ZSCORE', prefix .. 'later', job_type)
  return later_known[job_type] or (later_have + later_new < 1000 and type_allowed(job_type, have))
end
local function later_add(job_type, due)
  if not (later_due[job_type] or later_known[job_type]) then later_new = later_new + 1 end
  if due > (later_due[job_type] or 0) then later_due[job_type] = due end
end

-- The live holder of a unique key, or nil. A lock whose holder is gone or over is stale: taken over.
local function unique_holder(key)
  local holder = redis.pcall('GET', key)
  if type(holder) ~= 'string' then return holder and false or nil end
  local state = redis.pcall('HGET', prefix .. 'job:' .. holder, 'state')
  if type(state) ~= 'string' then return nil end
  if ends[state] then return nil end
  return holder
end

local NONE = {}
local stored, scheduled_adds = 0, {}
local function store(i, id, job_type, payload, priority, options)
  local key = prefix .. 'job:' .. id
  local state, digest = known(key, id, options)
  if state == false then return 'BROKEN_KEY' end
  if state then
    if options.digest and digest and digest ~= options.digest then return 'CONFLICT' end
    return { 'EXISTS', state }
  end
  local have = line_depth(job_type)
  if not have then return 'BROKEN_KEY' end
  local at = NOW + (i - 1) / 2048
  local due = options.run_at_ms
  if options.delay_ms then due = NOW + options.delay_ms end
  local later = due and due > NOW
  if later and not (readable_zset('scheduled') and readable_zset('later')) then return 'BROKEN_KEY' end
  local allowed
  if later then allowed = later_allowed(job_type, have) else allowed = type_allowed(job_type, have) end
  if not allowed then return 'TOO_MANY_TYPES' end
  if max_depth > 0 and depth >= max_depth then return 'FULL' end
  local expires = options.expires_ms and math.floor(at + options.expires_ms)
  if options.expires_at_ms then expires = options.expires_at_ms end
  if expires and expires <= NOW then return 'EXPIRED' end
  if later then due = due + (i - 1) / 2048 end
  if expires and not readable_zset('expiring') then return 'BROKEN_KEY' end
  if options.unique then
    local holder = unique_holder(prefix .. 'unique:' .. options.unique)
    if holder == false then return 'BROKEN_KEY' end
    if holder then return { 'UNIQUE', holder } end
    redis.call('SET', prefix .. 'unique:' .. options.unique, id)
  end
  if priority == 0 and options == NONE then
    redis.call('HSET', key, 'state', 'queued', 'type', job_type, 'payload', payload, 'created_at', NOW_MS)
  else
    local fields = { 'state', later and 'scheduled' or 'queued', 'type', job_type, 'payload', payload,
      'created_at', NOW_MS }
    local function set(name, value)
      if value then
        fields[#fields + 1] = name
        fields[#fields + 1] = value
      end
    end
    if priority ~= 0 then set('priority', priority) end
    if later then set('eligible_at', math.floor(due)) end
    set('expires_at', expires)
    set('unique', options.unique)
    set('digest', options.digest)
    set('max_attempts', options.max_attempts)
    set('timeout_ms', options.timeout_ms)
    set('result_ttl_ms', options.result_ttl_ms)
    set('retried_from', options.retried_from)
    set('traceparent', options.traceparent)
    if options.keep_payload then set('keep_payload', '1') end
    redis.call('HSET', key, unpack(fields))
  end
  if expires then redis.call('ZADD', prefix .. 'expiring', expires, id) end
  depth = depth + 1
  stored = stored + 1
  if later then
    scheduled_adds[#scheduled_adds + 1] = due
    scheduled_adds[#scheduled_adds + 1] = id
    later_add(job_type, due)
    became(id, 'scheduled', job_type)
    return 'SCHEDULED'
  end
  line_add(job_type, id, line_score(at, priority))
  return 'QUEUED'
end

local replies = {}
for i = 1, item_count do
  local id, job_type, payload, priority, options = item(i)
  replies[i] = store(i, id, job_type, payload, priority, options == '' and NONE or cjson.decode(options))
end
flush_lines()
due_add('scheduled', scheduled_adds)
for job_type, due in pairs(later_due) do keep_later(job_type, due) end
if stored > 0 then count('enqueued', stored) end
flush_stats()
return replies
