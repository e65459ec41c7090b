#!lua flags=allow-oom
-- claim: queued -> running
-- Takes up to `most` jobs, lowest score first, over the lines of the caller's types, under a new fence
-- each and one lease. `call` numbers the worker's claims: the same number again answers the same jobs, a
-- lower one is refused, so a claim whose answer was lost can be repeated. A worker marked dead gets
-- nothing. most = 0 only looks. What has expired is failed instead of run.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   worker       str
-- ARGV   call         int
-- ARGV   most         int
-- ARGV   upper        str     no job with a higher score, the first one excepted; '' for none
-- ARGV   lease_ms     int
-- ARGV   max_bytes    int     stop before the payloads pass this, the first job excepted
-- ARGV   protocol     int     version of the worker's side of the protocol
-- ARGV   alone        flag    a suspect is handed out by itself (to whom cannot part its runs)
-- ITEMS  known_type   job_type str
-- REPLY  OK | LOST | STALE | TOO_OLD | BROKEN_KEY
-- @include _clock _config _stats _bulk _history _lines _job _close _promote _errors
if (tonumber(CONFIG[6]) or 0) > protocol then return { 'TOO_OLD', CONFIG[6] } end
local death = redis.pcall('ZSCORE', prefix .. 'dead', worker)
if death then
  if type(death) == 'table' then return { 'BROKEN_KEY', 'dead' } end
  return { 'LOST' }
end
if most > 0 and not readable_zset('leases') then return { 'BROKEN_KEY', 'leases' } end
local list = prefix .. 'processing:' .. worker
local holder = redis.pcall('HGET', prefix .. 'holders', worker)
if type(holder) == 'table' then return { 'BROKEN_KEY', 'holders' } end
local length = redis.pcall('LLEN', list)
if type(length) ~= 'number' then return { 'BROKEN_KEY', 'processing' } end

-- All fields of a job by name: a waiting job has few, and a field that is not there costs a look at all.
local function read(key)
  local flat = redis.pcall('HGETALL', key)
  if flat.err then return flat end
  local v = {}
  for i = 1, #flat, 2 do v[flat[i]] = flat[i + 1] end
  return v
end
local function answer(id, fence, attempts, v)
  return { id, fence, v.type, v.payload or '', attempts, v.failures or '0', v.crashes or '0', v.lost or '0',
    v.max_attempts or '', v.timeout_ms or '', v.created_at or '0', v.priority or '0', v.result_ttl_ms or '',
    v.traceparent }
end

local last_call, last_count = 0, 0
if holder then
  local a, b = string.match(holder, '^(%d+) (%d+)')
  last_call, last_count = tonumber(a or 0), tonumber(b or 0)
end
if most > 0 and call < last_call then return { 'STALE' } end
if most > 0 and call == last_call then
  local jobs = {}
  for _, id in ipairs(last_count > 0 and redis.call('LRANGE', list, -last_count, -1) or {}) do
    local v = read(prefix .. 'job:' .. id)
    if v.state == 'running' and v.worker == worker and tonumber(v.call) == call then
      jobs[#jobs + 1] = answer(id, v.fence, v.attempts, v)
    end
  end
  return { 'OK', exact(NOW), '', '', 1, jobs }
end

-- A page of what is due, whatever is asked for: the rest comes with the next claims and the janitor.
local due = promote(200)

-- The lines that may be served, each with a small buffer of its head, refilled as it is eaten.
local paused = {}
for name in string.gmatch(CONFIG[3] or '', '[^ ]+') do paused[name] = true end
local fronts, by_type = {}, {}
if not PAUSED and known_type_count > 0 then
  local wanted = {}
  for i = 1, known_type_count do
    local name = known_type(i)
    if not paused[name] then wanted[#wanted + 1] = name end
  end
  -- At most 2,000 lines, which is twice what enqueue lets in; asked for in pages, since unpack() has its limit.
  local active = {}
  for from = 1, #wanted, 2000 do
    local waiting = redis.pcall('SMISMEMBER', prefix .. 'lines', unpack(wanted, from, math.min(from + 1999, #wanted)))
    if waiting.err then return { 'BROKEN_KEY', 'lines' } end
    for i = 1, #waiting do
      if waiting[i] == 1 and #active < 2000 then active[#active + 1] = wanted[from + i - 1] end
    end
  end
  -- A share each, and one more where that saves another look: the head of what is left is answered too.
  local chunk = math.max(1, math.ceil(most / math.max(1, #active)))
  if most >= #active or #active <= 4 then chunk = chunk + 1 end
  for i = 1, #active do
    local head = redis.pcall('ZRANGE', prefix .. 'ready:' .. active[i], 0, chunk - 1, 'WITHSCORES')
    if head.err then
      count('broken_line', 1)
    elseif #head == 0 then
      line_taken(active[i])
    else
      local front = { type = active[i], buffer = head, at = 1, score = tonumber(head[2]), read = #head / 2,
        chunk = chunk, ends = #head < 2 * chunk, gone = {}, stale = 0 }
      fronts[#fronts + 1] = front
    end
  end
end

-- A binary heap of the lines by the score of their head, so that a claim over T lines costs n log T.
local function sift(i)
  local n = #fronts
  while true do
    local least, left = i, 2 * i
    if left <= n and fronts[left].score < fronts[least].score then least = left end
    if left + 1 <= n and fronts[left + 1].score < fronts[least].score then least = left + 1 end
    if least == i then return end
    fronts[i], fronts[least] = fronts[least], fronts[i]
    i = least
  end
end
for i = math.floor(#fronts / 2), 1, -1 do sift(i) end
local touched = {}
local function advance(front)
  front.at = front.at + 2
  if front.at > #front.buffer then
    if not front.ends then
      -- Ids taken so far still stand in the line: they are removed together at the end.
      local from = front.read
      front.chunk = 2 * front.chunk
      front.buffer = redis.call('ZRANGE', prefix .. 'ready:' .. front.type, from, from + front.chunk - 1, 'WITHSCORES')
      front.at, front.ends = 1, #front.buffer < 2 * front.chunk
      front.read = from + #front.buffer / 2
    end
    if front.at > #front.buffer then
      fronts[1] = fronts[#fronts]
      fronts[#fronts] = nil
      front.empty = true
      if #fronts > 0 then sift(1) end
      return
    end
  end
  front.score = tonumber(front.buffer[front.at + 1])
  sift(1)
end

-- It was there when a process died, or was lost again and again.
local function suspect(v) return (tonumber(v.crashes) or 0) > 0 or (tonumber(v.lost) or 0) >= 3 end

local limit, now_text = tonumber(upper), int_text(NOW_MS)
local taken, jobs, bytes, seen = {}, {}, 0, 0
while #jobs < most and #fronts > 0 and seen < most + 200 do
  local front = fronts[1]
  if #jobs > 0 and limit and front.score > limit then break end
  local id, job_type, score = front.buffer[front.at], front.type, front.buffer[front.at + 1]
  local key = prefix .. 'job:' .. id
  local v = read(key)
  local take, drop = false, false
  if v.err then
    quarantine(id, 'ready:' .. job_type, 'not a hash')
    drop = true
  elseif not v.state then
    quarantine(id, 'ready:' .. job_type, 'no job')
    drop = true
  elseif v.state ~= 'queued' or v.type ~= job_type then
    count('misplaced', 1)
    drop = true
  elseif v.expires_at and (tonumber(v.expires_at) or NOW + 1) <= NOW then
    -- Where its end cannot be recorded it stays in line, and those behind it are served.
    if can_close('failed') then
      history(id, 'expired')
      local error = '{"type":"Expired","message":"expired before a worker took it"}'
      close(id, read_job(id), 'failed', { 'reason', 'expired', 'error', error, 'fingerprint',
        note_error(id, job_type, 'Expired', error, true) })
      drop = true
    end
  elseif #jobs > 0 and (bytes + #(v.payload or '') > max_bytes or alone and suspect(v)) then
    break
  else
    take = true
  end
  if take or drop then
    if not touched[job_type] then touched[job_type] = front end
    front.gone[#front.gone + 1] = id
  end
  seen = seen + 1
  if take then
    local fence, attempts = now_text, '1'
    if v.fence then fence = int_text(math.max((tonumber(v.fence) or 0) + 1, NOW_MS)) end
    if v.attempts then attempts = int_text((tonumber(v.attempts) or 0) + 1) end
    bytes = bytes + #(v.payload or '')
    taken[#taken + 1] = id
    jobs[#jobs + 1] = answer(id, fence, attempts, v)
    redis.call('HSET', key, 'state', 'running', 'worker', worker, 'call', call, 'fence', fence,
      'attempts', attempts, 'started_at', NOW_MS, 'score', score)
    became(id, 'running', job_type)
    if alone and suspect(v) then most = #jobs end
  end
  advance(front)
end
for job_type, front in pairs(touched) do
  bulk('ZREM', prefix .. 'ready:' .. job_type, front.gone)
  if front.empty then line_taken(job_type) end
end
if most > 0 then
  -- A call that took nothing is numbered too: its late repeat must not take jobs that nobody waits for.
  if #taken > 0 then bulk('RPUSH', list, taken) end
  if #taken > 0 or holder then
    redis.call('HSET', prefix .. 'holders', worker, call .. ' ' .. #taken .. ' ' .. lease_ms)
  end
  if #taken > 0 then redis.call('ZADD', prefix .. 'leases', NOW + lease_ms, worker) end
end
flush_closed()
flush_errors()
flush_stats()
local head = fronts[1]
return { 'OK', exact(NOW), head and exact(head.score) or '', due and exact(due) or '', 0, jobs }
