-- The check that guards every exit from running. `how` is a word for this exit: with the fence it stays in the
-- job as `left`, so that the same report again is known however late it comes.
-- Answers the job, or nil and the word for the caller.
local list = prefix .. 'processing:' .. worker
local LEFT = { released = 'QUEUED', crashed = 'QUEUED', snoozed = 'SCHEDULED', failed = 'RETRYING' }
local function leave(id, fence, how)
  local job, why = read_job(id)
  if not job then return nil, why == 'MISSING' and 'GONE' or 'BROKEN' end
  if owned(job, worker, fence) then return job end
  if job.fence == fence and job.worker == worker then
    if job.state == 'cancelled' then return nil, 'CANCELLED' end
    if job.state == 'failed' and (how == 'failed' or how == 'crashed') then return nil, 'FAILED' end
  end
  if job.left == fence .. ' ' .. how then return nil, LEFT[how] end
  count('fenced_out', 1)
  return nil, 'STALE'
end
if type(redis.pcall('LLEN', list)) ~= 'number' then return redis.error_reply('BROKEN_KEY processing') end
