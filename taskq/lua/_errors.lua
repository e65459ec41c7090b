-- Failures by their kind. `errors` orders the kinds by last sight, `error:<fingerprint>` tells of each; at most
-- 200 are kept, the least recent go. Like counters they are told after the facts and are never worth failing for.
local MOST_ERRORS, ERROR_MS = 200, 2592000000
local errors_noted, errors_order = {}, {}
-- The stand-in for a server in tests has no sha1hex: any hash will do there.
local hash_of = redis.sha1hex or function(text)
  local a, b = 5381, 52711
  for i = 1, #text do
    a = (a * 33 + string.byte(text, i)) % 4294967296
    b = (b * 31 + string.byte(text, i)) % 4294967291
  end
  return string.format('%08x%08x', a, b)
end
-- One failed run of this kind; `ended` says that it was the job's last. Answers the fingerprint, for the job.
local function note_error(id, job_type, signature, error, ended)
  local fingerprint = string.sub(hash_of(job_type .. ':' .. signature), 1, 16)
  local group = errors_noted[fingerprint]
  if not group then
    group = { job_type = job_type, signature = signature, error = error, count = 0, failed = 0 }
    errors_noted[fingerprint] = group
    errors_order[#errors_order + 1] = fingerprint
  end
  group.count = group.count + 1
  if ended then group.failed = group.failed + 1 end
  group.job = id
  return fingerprint
end
local function flush_errors()
  if #errors_order == 0 or not readable_zset('errors') then return end
  for i = 1, #errors_order do
    local fingerprint = errors_order[i]
    local group, key = errors_noted[fingerprint], prefix .. 'error:' .. fingerprint
    local total = redis.pcall('HINCRBY', key, 'count', group.count)
    if type(total) == 'number' then
      if total == group.count then
        redis.call('HSET', key, 'job_type', group.job_type, 'signature', group.signature, 'first_at', NOW_MS)
      end
      redis.call('HSET', key, 'last_at', NOW_MS, 'job', group.job, 'error', group.error)
      if group.failed > 0 then redis.pcall('HINCRBY', key, 'failed', group.failed) end
      redis.call('PEXPIRE', key, ERROR_MS)
      redis.call('ZADD', prefix .. 'errors', NOW, fingerprint)
    end
  end
  local over = redis.call('ZCARD', prefix .. 'errors') - MOST_ERRORS
  local gone = over > 0 and redis.call('ZRANGE', prefix .. 'errors', 0, over - 1) or {}
  local old = redis.call('ZRANGEBYSCORE', prefix .. 'errors', '-inf', NOW - ERROR_MS, 'LIMIT', 0, 100)
  for i = 1, #old do gone[#gone + 1] = old[i] end
  for i = 1, #gone do
    redis.call('ZREM', prefix .. 'errors', gone[i])
    redis.call('DEL', prefix .. 'error:' .. gone[i])
  end
end
