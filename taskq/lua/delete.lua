#!lua flags=allow-oom
-- delete: succeeded | failed | cancelled -> (gone)
-- Drops ended jobs now; their stubs stay, so that a late repeat of a submission is still recognised. `fence`
-- names the last run that was seen (0: none): a job that has run since stays. '' deletes it all the same.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ITEMS  item         id str, fence str
-- REPLY  per item     DELETED | STALE | WRONG_STATE | NOT_FOUND | BROKEN
-- @include _clock _config _stats _bulk _job _ended _trim
local replies = {}
for i = 1, item_count do
  local id, fence = item(i)
  local job, why = read_job(id)
  if not job then
    replies[i] = why == 'MISSING' and 'NOT_FOUND' or 'BROKEN'
  elseif not RETENTION[job.state] then
    replies[i] = { 'WRONG_STATE', job.state }
  elseif fence ~= '' and (job.fence or '0') ~= fence then
    replies[i] = 'STALE'
  else
    local finished = redis.pcall('ZSCORE', prefix .. job.state, id)
    if type(finished) ~= 'string' then
      replies[i] = 'NOT_FOUND'
    else
      forget(job.state, id, finished)
      redis.pcall('ZREM', prefix .. 'expiring', id)
      replies[i] = 'DELETED'
    end
  end
end
return replies
