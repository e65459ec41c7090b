#!lua flags=allow-oom
-- repair: running -> queued | failed | cancelled
-- Puts right what doctor found: looks at each item again first, and changes nothing about one that is in
-- order (by now). A job's state decides where it stands; only a run that nobody can report any more leaves
-- its state, as lost. Nothing readable is thrown away: a key of the wrong type, or a hash that is no job, is
-- renamed to `set-aside:<name>` for 30 days; a member or setting that is none goes to quarantine as it was.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   lease_ms     int     grace for a list without a lease
-- ARGV   max_lost     int
-- ITEMS  item         kind str, name bytes, where str, seen bytes
-- REPLY  per item     what was done, in words; '' for nothing
-- @include _clock _config _stats _bulk _history _lines _job _ended _close _requeue
local SETS = { 'scheduled', 'retrying', 'blocked', 'succeeded', 'failed', 'cancelled' }
local LIVE = { scheduled = true, retrying = true, blocked = true, queued = true, running = true }
local TYPES = { processing = 'list', cancelling = 'set', lines = 'set', holders = 'hash' }
local SET_ASIDE_MS, OLDEST_MARK = 2592000000, 3660000
local did
local function note(text) did[#did + 1] = text end
local function finite(text)
  local number = tonumber(text)
  return number and math.abs(number) < 9007199254740992 and number or nil
end
local function type_of(name) return redis.call('TYPE', prefix .. name).ok end
local function score_in(name, member)
  local score = redis.pcall('ZSCORE', prefix .. name, member)
  return type(score) == 'string' and tonumber(score) or nil
end
-- The place of a name like ready:mail, if it can be read and written.
local function usable(name)
  local have, wanted = type_of(name), TYPES[string.match(name, '^[^:]*')] or 'zset'
  return (have == wanted or have == 'none') and wanted
end

-- --- what is kept of what goes -------------------------------------------------------------------
local function keep(member, from, reason, raw)
  local entry = { at = NOW_MS, from = from, reason = reason }
  if raw ~= '' then entry.base64 = raw end
  redis.pcall('HSET', prefix .. 'quarantine', member, cjson.encode(entry))
  count('quarantined', 1)
end
local function set_aside(name, shown, reason)
  local to = prefix .. 'set-aside:' .. shown
  while redis.call('EXISTS', to) == 1 do to = to .. '+' end
  redis.call('RENAME', prefix .. name, to)
  redis.call('PEXPIRE', to, SET_ASIDE_MS)
  keep(shown, shown, reason .. ': see the key ' .. string.sub(to, #prefix + 1), '')
  note('kept for 30 days as ' .. string.sub(to, #prefix + 1))
end
local function take_out(name, member)
  local key, n, of_type = prefix .. name, 0, usable(name)
  if of_type == 'zset' then n = redis.call('ZREM', key, member)
  elseif of_type == 'set' then n = redis.call('SREM', key, member)
  elseif of_type == 'list' then n = redis.call('LREM', key, 0, member)
  elseif of_type == 'hash' then n = redis.call('HDEL', key, member) end
  if n == 0 then return false end
  note('taken out of ' .. name)
  local line = string.match(name, '^ready:(.*)')
  if line then line_taken(line) end
  return true
end

-- --- workers -------------------------------------------------------------------------------------
-- Whether somebody may still report this worker's runs. One whose lease alone is gone may.
local function alive(worker)
  if not worker or score_in('dead', worker) then return false end
  local lease = score_in('leases', worker)
  if lease then return lease > NOW end
  return redis.pcall('HEXISTS', prefix .. 'holders', worker) == 1
end
local function last_call(worker)
  local id = redis.call('LINDEX', prefix .. 'processing:' .. worker, -1)
  local job = id and read_job(id)
  return job and job.call or 0
end
local function held_by(worker, dead)
  if usable('holders') and redis.call('HEXISTS', prefix .. 'holders', worker) == 0 then
    redis.call('HSET', prefix .. 'holders', worker, int_text(last_call(worker)) .. ' 0 ' .. int_text(lease_ms))
    note('entered in holders')
  end
  if usable('leases') and not score_in('leases', worker) then
    redis.call('ZADD', prefix .. 'leases', dead and 0 or NOW + lease_ms, worker)
    note(dead and 'given to the janitor: its worker is dead' or 'given one lease of grace')
  end
end
local function worker_in_order(worker)
  local held, dead = redis.pcall('LLEN', prefix .. 'processing:' .. worker), score_in('dead', worker)
  if type(held) ~= 'number' then return end
  if held > 0 then return held_by(worker, dead) end
  if not score_in('leases', worker) then take_out('holders', worker) end
  if dead and dead < NOW - OLDEST_MARK then take_out('dead', worker) end
  if dead and dead > NOW + 60000 then
    redis.call('ZADD', prefix .. 'dead', NOW, worker)
    note('its mark of death lay ahead: dated now')
  end
end

-- --- runs ----------------------------------------------------------------------------------------
local function lost(id, job)
  local n = job.lost + 1
  local why = job.fence and 'no worker holds it' or 'its fence is gone'
  local extra = ',"worker":' .. cjson.encode(job.worker or '') .. ',"lost":' .. int_text(n) .. ',"reason":"' .. why .. '"'
  if n >= max_lost and not job.cancel then
    if not can_close('failed') then return end
    history(id, 'lost', extra)
    close(id, job, 'failed', { 'lost', n, 'error', '{"type":"WorkerLost","message":"' .. why .. '"}' })
    note('lost too often: failed')
  elseif requeue(id, job, 'lost', extra, { 'lost', n }) then
    note(job.cancel and 'cancelled, as was asked' or 'lost: queued again')
  else
    return
  end
  count('lost:' .. job.type, 1)
  if job.worker then take_out('processing:' .. job.worker, id) end
  if not job.cancel then take_out('cancelling', id) end
end
-- One entry in the list of the worker; a claim that is repeated looks for its jobs at the end.
local function listed_once(id, job)
  local list = prefix .. 'processing:' .. job.worker
  redis.call('LREM', list, 0, id)
  if (job.call or 0) >= last_call(job.worker) then redis.call('RPUSH', list, id) else redis.call('LPUSH', list, id) end
  note('listed once at its worker')
end
local function run_in_order(id, job)
  local list = 'processing:' .. (job.worker or '')
  if not usable(list) then return end
  local found = redis.call('LPOS', prefix .. list, id, 'COUNT', 0)
  local times = type(found) == 'table' and #found or 0
  if not (job.worker and job.fence) or (times == 0 and not alive(job.worker)) then return lost(id, job) end
  if times ~= 1 then listed_once(id, job) end
  worker_in_order(job.worker)
end

-- --- jobs ----------------------------------------------------------------------------------------
local function place(id, job)
  local home = job.state == 'queued' and 'ready:' .. job.type or job.state
  if not usable(home) or score_in(home, id) then
    if job.state == 'queued' and redis.pcall('SISMEMBER', prefix .. 'lines', job.type) == 0 then
      redis.call('SADD', prefix .. 'lines', job.type)
      wake(job.type, 1)
      note('its line entered in lines')
    end
    return
  end
  if job.state == 'queued' then
    if not line_depth(job.type) then return end
    line_add(job.type, id, finite(job.score) or line_score(finite(job.eligible_at) or NOW, finite(job.priority)))
  else
    local at = job.eligible_at
    if ends[job.state] then at = redis.call('HGET', prefix .. 'job:' .. id, 'finished_at') end
    redis.call('ZADD', prefix .. home, finite(at) or NOW, id)
  end
  note('put into ' .. home)
end
local function unique_in_order(id, job)
  local key = prefix .. 'unique:' .. job.unique
  local holder = redis.pcall('GET', key)
  if holder == id or type(holder) == 'table' then return end
  local other = holder and read_job(holder)
  if other and LIVE[other.state] and other.unique == job.unique then
    redis.call('HDEL', prefix .. 'job:' .. id, 'unique')
    history(id, 'unique key lost', ',"holder":' .. cjson.encode(holder))
    note('goes on without its unique key, which ' .. holder .. ' holds')
  else
    redis.call('SET', key, id)
    note('given its unique key')
  end
end
local function flags_in_order(id, job)
  local key = prefix .. 'job:' .. id
  if redis.call('PERSIST', key) == 1 then note('made to last') end
  if job.unique then unique_in_order(id, job) end
  if not job.expires_at then
    take_out('expiring', id)
  elseif not finite(job.expires_at) then
    redis.call('HDEL', key, 'expires_at')
    take_out('expiring', id)
    note('its expiry, which was no number, dropped')
  elseif usable('expiring') and not score_in('expiring', id) then
    redis.call('ZADD', prefix .. 'expiring', finite(job.expires_at), id)
    note('put into expiring')
  end
  if job.state == 'running' and job.cancel and redis.pcall('SADD', prefix .. 'cancelling', id) == 1 then
    note('put into cancelling')
  end
end
local function nowhere_but(home, id)
  for i = 1, #SETS do if SETS[i] ~= home then take_out(SETS[i], id) end end
end
local function stub_in_order(id, job, box)
  nowhere_but('', id)
  take_out('expiring', id)
  take_out('cancelling', id)
  local home = 'stubs:' .. job.state
  if box ~= '' and box ~= home then take_out(box, id) end
  if usable(home) and not score_in(home, id) then
    local at = redis.call('HGET', prefix .. 'job:' .. id, 'finished_at')
    redis.call('ZADD', prefix .. home, finite(at) or NOW, id)
    note('put into ' .. home)
  end
end
local function no_job(id, box, raw)
  local found = false
  for i = 1, #SETS do found = take_out(SETS[i], id) or found end
  found = take_out('expiring', id) or found
  found = take_out('cancelling', id) or found
  -- A plain stub is a member without a hash.
  if box ~= '' and not string.find(box, '^stubs:') then found = take_out(box, id) or found end
  if found and raw ~= '' then keep(id, box, 'no job', raw) end
end
local function job_in_order(id, box, raw)
  local job, why = read_job(id)
  if why == 'WRONGTYPE' then return end
  local stub = job and redis.call('HEXISTS', prefix .. 'job:' .. id, 'stub') == 1
  local whole = job and ((LIVE[job.state] and job.type ~= '' and not stub) or ends[job.state])
  if not whole then
    if redis.call('EXISTS', prefix .. 'job:' .. id) == 1 then set_aside('job:' .. id, 'job:' .. id, 'no whole job') end
    return no_job(id, box, raw)
  end
  if stub then return stub_in_order(id, job, box) end
  local home = job.state
  if home == 'queued' then home = 'ready:' .. job.type
  elseif home == 'running' then home = 'processing:' .. (job.worker or '') end
  nowhere_but(home, id)
  if home ~= 'ready:' .. job.type then take_out('ready:' .. job.type, id) end
  if job.worker and job.state ~= 'running' then take_out('processing:' .. job.worker, id) end
  if box ~= '' and box ~= home and box ~= 'expiring' and box ~= 'cancelling' then take_out(box, id) end
  if not (job.state == 'running' and job.cancel) then take_out('cancelling', id) end
  if LIVE[job.state] then flags_in_order(id, job) end
  if job.state == 'running' then run_in_order(id, job) else place(id, job) end
end

-- --- keys ----------------------------------------------------------------------------------------
local function lock_in_order(name)
  local holder = redis.pcall('GET', prefix .. 'unique:' .. name)
  if type(holder) ~= 'string' then return end
  local job, why = read_job(holder)
  if why == 'WRONGTYPE' or (job and LIVE[job.state] and job.unique == name) then return end
  redis.call('DEL', prefix .. 'unique:' .. name)
  note('deleted')
end
local function line_in_order(name)
  local depth, named = redis.pcall('ZCARD', prefix .. 'ready:' .. name), redis.pcall('SISMEMBER', prefix .. 'lines', name)
  if depth == 0 and named == 1 then
    line_taken(name)
    note('taken out of lines')
  elseif type(depth) == 'number' and depth > 0 and named == 0 then
    redis.call('SADD', prefix .. 'lines', name)
    wake(name, 1)
    note('entered in lines')
  end
end
local kinds = { misplaced = job_in_order, entry = job_in_order, worker = worker_in_order, line = line_in_order, lock = lock_in_order }
function kinds.key(name, wanted, shown)
  local have = type_of(name)
  if have ~= 'none' and have ~= wanted then
    set_aside(name, shown, wanted == '' and 'no text' or 'a ' .. have .. ', not a ' .. wanted)
  end
end
function kinds.lasting(name)
  if redis.call('PERSIST', prefix .. name) == 1 then note('made to last') end
end
function kinds.passing(name, ms)
  if redis.call('PTTL', prefix .. name) == -1 and redis.call('PEXPIRE', prefix .. name, ms) == 1 then
    note('given a time to live')
  end
end
function kinds.attached(name)
  local v = redis.pcall('HMGET', prefix .. 'job:' .. string.match(name, '^[^:]*:(.*)'), 'state', 'stub')
  if not v.err and (not v[1] or v[2]) and redis.call('DEL', prefix .. name) == 1 then note('deleted') end
end
function kinds.member(member, box, raw)
  if take_out(box, member) then keep('base64:' .. raw, box, 'no text', raw) end
end
function kinds.setting(name, _, seen)
  if redis.pcall('HGET', prefix .. 'config', name) == seen then
    redis.call('HDEL', prefix .. 'config', name)
    keep('config ' .. name, 'config', 'no value for it: ' .. seen, '')
    note('cleared: the default holds')
  end
end

local replies = {}
for i = 1, item_count do
  local kind, name, where, seen = item(i)
  did = {}
  kinds[kind](name, where, seen)
  -- Each item meets what the one before has written.
  flush_lines()
  flush_closed()
  closed, closable, depths, lines_count = { succeeded = {}, failed = {}, cancelled = {} }, {}, {}, nil
  replies[i] = table.concat(did, ', ')
end
flush_stats()
return replies
