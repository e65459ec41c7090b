#!lua flags=allow-oom
-- edit: scheduled | queued | retrying -> scheduled | queued
-- Changes the priority of a waiting job (its place moves by the difference), or when it is due. What is
-- so already is left alone: a job in line that is to be due now keeps its place. `fence` names the last run that
-- was seen (0: none), so that a job which has run since is left alone; '' edits it all the same.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ITEMS  item         id str, priority str, run_at_ms str, fence str
-- REPLY  per item     OK | STALE | WRONG_STATE | NOT_FOUND | BROKEN
-- @include _clock _config _stats _bulk _history _lines _later _job
local function change(id, priority, run_at, fence)
  local job, why = read_job(id)
  if not job then return why == 'MISSING' and 'NOT_FOUND' or 'BROKEN' end
  if job.state ~= 'scheduled' and job.state ~= 'queued' and job.state ~= 'retrying' then
    return { 'WRONG_STATE', job.state }
  end
  if fence ~= '' and (job.fence or '0') ~= fence then return 'STALE' end
  local line = job.state == 'queued' and 'ready:' .. job.type or job.state
  if not (readable_zset(line) and readable_zset('scheduled') and line_depth(job.type)) then return 'BROKEN' end
  local place = tonumber(redis.call('ZSCORE', prefix .. line, id) or nil)
  if not place then return 'BROKEN' end
  local old = tonumber(job.priority) or 0
  local new, due = tonumber(priority) or old, tonumber(run_at)
  if due and ((job.state == 'queued' and due <= NOW) or (job.state == 'scheduled' and due > NOW and due == place)) then
    due = nil
  end
  if new == old and not due then return 'OK' end
  -- Decided; from here on it is written.
  local fields, said = {}, ''
  if new ~= old then
    fields = { 'priority', int_text(new) }
    said = ',"priority":' .. int_text(new)
  end
  if due then
    fields[#fields + 1] = 'state'
    fields[#fields + 1] = due > NOW and 'scheduled' or 'queued'
    fields[#fields + 1] = 'eligible_at'
    fields[#fields + 1] = due > NOW and int_text(due) or NOW_MS
    said = said .. ',"run_at":' .. int_text(due)
  end
  redis.call('HSET', prefix .. 'job:' .. id, unpack(fields))
  if due then
    redis.call('ZREM', prefix .. line, id)
    if job.state == 'queued' then line_taken(job.type) end
    if due > NOW then
      redis.call('ZADD', prefix .. 'scheduled', due, id)
      keep_later(job.type, due)
      if job.state ~= 'scheduled' then became(id, 'scheduled', job.type) end
      wake(job.type, 1)
    else
      line_add(job.type, id, line_score(NOW, new))
    end
  elseif job.state == 'queued' then
    redis.call('ZADD', prefix .. line, place + (old - new) * AGING, id)
  end
  history(id, 'edited', said)
  return 'OK'
end
local replies = {}
for i = 1, item_count do
  local id, priority, run_at, fence = item(i)
  replies[i] = change(id, priority, run_at, fence)
  depths = {}
end
for i = 1, #added_types do depths[added_types[i]] = redis.call('ZCARD', prefix .. 'ready:' .. added_types[i]) end
flush_lines()
flush_stats()
return replies
