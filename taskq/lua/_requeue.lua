-- Puts a running job back in line at its old place, or ends it if that was asked for meanwhile.
-- Answers nil when the line or the terminal set cannot be written (nothing was).
local function requeue(id, job, event, extra, fields)
  if job.cancel then
    if not can_close('cancelled') then return nil end
    history(id, event, extra)
    fields[#fields + 1] = 'reason'
    fields[#fields + 1] = job.cancel
    close(id, job, 'cancelled', fields)
    return 'CANCELLED'
  end
  if not line_depth(job.type) then return nil end
  local key = prefix .. 'job:' .. id
  fields[#fields + 1] = 'state'
  fields[#fields + 1] = 'queued'
  redis.call('HSET', key, unpack(fields))
  redis.call('HDEL', key, 'worker', 'call', 'score', 'started_at')
  expiry_counts(id, job)
  history(id, event, extra)
  line_add(job.type, id, job.score or line_score(job.eligible_at or NOW, job.priority))
  return 'QUEUED'
end
