#!lua flags=allow-oom
-- edit: scheduled | queued | retrying -> scheduled | queued
-- Changes the priority of a waiting job (its place moves by the difference), or when it is due. What is
-- so already is left alone: a job in line that is to be due now keeps its place.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ITEMS  item         id str, priority str, run_at_ms str
-- REPLY  per item     OK | WRONG_STATE | NOT_FOUND | BROKEN
-- @include _clock _config _stats _bulk _history _lines _job
local function change(id, priority, run_at)
  local job, why = read_job(id)
  if not job then return why == 'MISSING' and 'NOT_FOUND' or 'BROKEN' end
  if job.state ~= 'scheduled' and job.state ~= 'queued' and job.state ~= 'retrying' then
    return { 'WRONG_STATE', job.state }
  end
  local line = job.state == 'queued' and 'ready:' .. job.type or job.state
  if not (readable_zset(line) and readable_zset('scheduled') and line_depth(job.type)) then return 'BROKEN' end
  local place = tonumber(redis.call('ZSCORE', prefix .. line, id) or nil)
  if not place then return 'BROKEN' end
  local key = prefix .. 'job:' .. id
  local shift, old = 0, tonumber(job.priority) or 0
  if priority ~= '' and tonumber(priority) ~= old then
    shift = (old - tonumber(priority)) * AGING
    redis.call('HSET', key, 'priority', priority)
    history(id, 'edited', ',"priority":' .. priority)
  end
  local due = tonumber(run_at)
  if not due or (job.state == 'queued' and due <= NOW) or (job.state == 'scheduled' and due > NOW and due == place) then
    if job.state == 'queued' and shift ~= 0 then redis.call('ZADD', prefix .. line, place + shift, id) end
    return 'OK'
  end
  redis.call('ZREM', prefix .. line, id)
  if job.state == 'queued' then line_taken(job.type) end
  local new_priority = priority ~= '' and priority or job.priority
  if due > NOW then
    redis.call('HSET', key, 'state', 'scheduled', 'eligible_at', int_text(due))
    redis.call('ZADD', prefix .. 'scheduled', due, id)
    wake(job.type, 1)
  else
    redis.call('HSET', key, 'state', 'queued', 'eligible_at', NOW_MS)
    line_add(job.type, id, line_score(NOW, new_priority))
  end
  history(id, 'edited', ',"run_at":' .. int_text(due))
  return 'OK'
end
local replies = {}
for i = 1, item_count do
  local id, priority, run_at = item(i)
  replies[i] = change(id, priority, run_at)
  depths = {}
end
for i = 1, #added_types do depths[added_types[i]] = redis.call('ZCARD', prefix .. 'ready:' .. added_types[i]) end
flush_lines()
return replies
