#!lua flags=allow-oom
-- reap: running -> queued | failed | cancelled
-- Takes the jobs of dead workers back: those named as targets (a supervisor saw them die), else those
-- whose lease ran out. The worker is marked dead before its first job moves, so nothing it still sends
-- counts. Its lease stays, at score 0, until its list is empty: a page that did not finish goes on first.
-- The counter is crashes, lost or none (a stop that was asked for burns nothing).
-- Amnesty: when the server was away nobody could renew. A lease that had not run out before the last silence
-- of everybody (see _seen) is spared for its own length from the end of the silence on, by a janitor that was
-- trying all the while: one that has only just started does not know whether anybody was there to renew.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   limit        int     jobs at most
-- ARGV   lease_ms     int     grace for a list without a lease
-- ARGV   since        int     since when the caller has been trying, ms of the server's clock; 0: no amnesty
-- ARGV   max_crashes  int
-- ARGV   max_lost     int
-- ITEMS  item         worker str, counter str, reason str
-- REPLY  whole        OK | AMNESTY | BROKEN_KEY
-- @include _clock _config _stats _bulk _history _lines _job _close _requeue _errors _seen
local OLDEST_LEASE = 3600000
local left, workers, moved, ended, more = limit, 0, 0, 0, false
local COUNTERS = { crashes = true, lost = true, none = true }

local function verdict(id, worker, counter, reason)
  local job, why = read_job(id)
  if not job then
    if why == 'WRONGTYPE' then quarantine(id, 'processing', 'not a hash') else quarantine(id, 'processing', 'no job') end
    return true
  end
  -- Not this worker's any more: the entry is a leftover, the job is elsewhere.
  if job.state ~= 'running' or job.worker ~= worker then return true end
  if counter == 'none' then
    -- A stop that was asked for: the run was ended unfinished, and nothing is burnt.
    if not requeue(id, job, 'released', ',"worker":"' .. harmless(worker) .. '","reason":"' .. reason .. '"', {}) then return false end
    moved = moved + 1
    return true
  end
  -- A suspect runs in a process of its own and reports its crash by itself: that the worker above it died
  -- is a loss for it, however it died.
  if counter == 'crashes' and job.crashes > 0 then counter = 'lost' end
  local n = job[counter] + 1
  local extra = ',"worker":"' .. harmless(worker) .. '","' .. counter .. '":' .. int_text(n) .. ',"reason":"' .. reason .. '"'
  if n >= (counter == 'crashes' and max_crashes or max_lost) and not job.cancel then
    if not can_close('failed') then return false end
    history(id, counter == 'crashes' and 'crashed' or 'lost', extra)
    local kind = counter == 'crashes' and 'WorkerCrashed' or 'WorkerLost'
    local error = '{"type":"' .. kind .. '","message":"' .. reason .. ', ' .. int_text(n) .. ' times"}'
    close(id, job, 'failed', { counter, n, 'error', error, 'fingerprint',
      note_error(id, job.type, kind .. ': ' .. reason, error, true) })
    ended = ended + 1
  elseif not requeue(id, job, counter == 'crashes' and 'crashed' or 'lost', extra, { counter, n }) then
    return false
  end
  count(counter .. ':' .. job.type, 1)
  moved = moved + 1
  return true
end

local function drain(worker, counter, reason)
  local key = prefix .. 'processing:' .. worker
  local length = redis.pcall('LLEN', key)
  if type(length) ~= 'number' then
    quarantine(worker, 'processing', 'not a list')
    redis.call('ZREM', prefix .. 'leases', worker)
    return
  end
  if not redis.call('ZSCORE', prefix .. 'dead', worker) then
    redis.call('ZADD', prefix .. 'dead', NOW, worker)
    workers = workers + 1
  end
  local page = left > 0 and redis.call('LRANGE', key, 0, left - 1) or {}
  local stuck = {}
  for i = 1, #page do
    if not verdict(page[i], worker, counter, reason) then stuck[#stuck + 1] = page[i] end
  end
  left = left - #page
  if #page > 0 then redis.call('LTRIM', key, #page, -1) end
  -- What cannot be placed now waits behind the rest.
  if #stuck > 0 then bulk('RPUSH', key, stuck) end
  if #page == length and #stuck == 0 then
    redis.call('ZREM', prefix .. 'leases', worker)
    redis.pcall('HDEL', prefix .. 'holders', worker)
    redis.pcall('HDEL', prefix .. 'ticks', 'reason:' .. worker)
    return
  end
  -- Kept for the pages that follow, should another caller draw them. A list of which only what is stuck is
  -- left, or a whole page is, comes again a lease later, so that it does not stand before the others.
  redis.pcall('HSET', prefix .. 'ticks', 'reason:' .. worker, counter .. ' ' .. reason)
  if #page > 0 and (#page == length or #page == #stuck) then
    redis.call('ZADD', prefix .. 'leases', NOW + lease_ms, worker)
  else
    redis.call('ZADD', prefix .. 'leases', 0, worker)
    more = true
  end
end

if not (readable_zset('leases') and readable_zset('dead')) then return redis.error_reply('BROKEN_KEY leases') end
if item_count > 0 then
  for i = 1, item_count do
    local worker, counter, reason = item(i)
    drain(worker, counter, reason)
  end
  flush_lines()
  flush_closed()
  flush_errors()
  flush_stats()
  return { 'OK', more and 1 or 0, workers, moved, ended }
end

note_sign_of_life(lease_ms, true)
local patient = since > 0 and since + lease_ms / 3 < silent_to and silent_to <= NOW
local spared = 0

local function own_lease(worker)
  local holder = redis.pcall('HGET', prefix .. 'holders', worker)
  return type(holder) == 'string' and tonumber(string.match(holder, '(%d+)$')) or lease_ms
end

-- Its lease stays as it is, so that another silence cannot spare it again.
local function spare(worker, expiry)
  local spares = patient and expiry > silent_from and NOW < silent_to + own_lease(worker)
  if spares then spared = spared + 1 end
  return spares
end

-- A lease further ahead than its own length was set by a clock that has gone back since.
local ahead = redis.call('ZRANGEBYSCORE', prefix .. 'leases', '(' .. exact(NOW + lease_ms), '+inf', 'WITHSCORES', 'LIMIT', 0, 100)
for i = 1, #ahead, 2 do
  local own = own_lease(ahead[i])
  if tonumber(ahead[i + 1]) > NOW + own + 1 then redis.call('ZADD', prefix .. 'leases', NOW + own, ahead[i]) end
end

local due = redis.call('ZRANGEBYSCORE', prefix .. 'leases', '-inf', NOW, 'WITHSCORES', 'LIMIT', 0, 100)
for i = 1, #due, 2 do
  local worker = due[i]
  if redis.call('ZSCORE', prefix .. 'dead', worker) then
    local why = redis.pcall('HGET', prefix .. 'ticks', 'reason:' .. worker)
    local counter, reason = string.match(type(why) == 'string' and why or '', '^(%a+) (.*)$')
    -- Both were kept in a hash that people can write.
    drain(worker, COUNTERS[counter] and counter or 'lost', harmless(reason or 'lease ran out'))
  elseif redis.pcall('LLEN', prefix .. 'processing:' .. worker) == 0 then
    -- A lease matters only over a list: an idle worker is not dead.
    redis.call('ZREM', prefix .. 'leases', worker)
    redis.pcall('HDEL', prefix .. 'holders', worker)
  elseif not spare(worker, tonumber(due[i + 1])) then
    drain(worker, 'lost', 'lease ran out')
    count('leases_expired', 1)
  end
  if left <= 0 then more = true break end
end
if #due == 200 and spared < 100 then more = true end

-- A list whose lease vanished gets one lease of grace; found through the index of holders, a page a call.
local at = redis.pcall('HGET', prefix .. 'ticks', 'holders_cursor')
if type(at) ~= 'string' then at = '0' end
local page = redis.pcall('HSCAN', prefix .. 'holders', at, 'COUNT', 50)
if not page.err then
  if page[1] ~= at then redis.pcall('HSET', prefix .. 'ticks', 'holders_cursor', page[1]) end
  for i = 1, #page[2], 2 do
    local worker = page[2][i]
    if not redis.call('ZSCORE', prefix .. 'leases', worker) then
      if redis.pcall('LLEN', prefix .. 'processing:' .. worker) == 0 then
        redis.call('HDEL', prefix .. 'holders', worker)
      else
        redis.call('ZADD', prefix .. 'leases', NOW + lease_ms, worker)
      end
    end
  end
end
local old = redis.call('ZRANGEBYSCORE', prefix .. 'dead', '-inf', NOW - OLDEST_LEASE, 'LIMIT', 0, 100)
for i = 1, #old do
  if redis.pcall('LLEN', prefix .. 'processing:' .. old[i]) == 0 then redis.call('ZREM', prefix .. 'dead', old[i]) end
end
flush_lines()
flush_closed()
flush_errors()
flush_stats()
return { spared > 0 and 'AMNESTY' or 'OK', more and 1 or 0, workers, moved, ended }
