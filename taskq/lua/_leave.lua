-- The check that guards every exit from running. Answers the job, or nil and the word for the caller.
local list = prefix .. 'processing:' .. worker
local function leave(id, fence)
  local job, why = read_job(id)
  if not job then return nil, why == 'MISSING' and 'GONE' or 'BROKEN' end
  if owned(job, worker, fence) then return job end
  return nil, 'STALE', job
end
if type(redis.pcall('LLEN', list)) ~= 'number' then return redis.error_reply('BROKEN_KEY processing') end
