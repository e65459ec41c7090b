-- Reads what a move must know of a job. nil, reason when the hash is missing or not a hash. A field that is
-- no number counts as not set: to raise an error among writes would leave half a move.
local function read_job(id)
  local v = redis.pcall('HMGET', prefix .. 'job:' .. id, 'state', 'type', 'worker', 'fence', 'priority', 'score',
    'unique', 'expires_at', 'watched', 'cancel', 'call', 'failures', 'crashes', 'lost', 'started_at',
    'eligible_at', 'created_at', 'digest', 'left')
  if v.err then return nil, 'WRONGTYPE' end
  if not v[1] then return nil, 'MISSING' end
  return { state = v[1], type = v[2] or '', worker = v[3], fence = v[4], priority = v[5], score = v[6],
    unique = v[7], expires_at = v[8], watched = v[9], cancel = v[10], call = tonumber(v[11]),
    failures = tonumber(v[12]) or 0, crashes = tonumber(v[13]) or 0, lost = tonumber(v[14]) or 0,
    started_at = tonumber(v[15]), eligible_at = tonumber(v[16]) or tonumber(v[17]), digest = v[18], left = v[19] }
end
-- Whether a running job is this worker's under this fence: the condition of every exit from running.
local function owned(job, by, under)
  return job.state == 'running' and job.worker == by and job.fence == under
end
-- A job waits again: should it have expired while it ran, that is due now, and not when expire looks next.
local function expiry_counts(id, job)
  if job.expires_at then redis.pcall('ZADD', prefix .. 'expiring', job.expires_at, id) end
end
