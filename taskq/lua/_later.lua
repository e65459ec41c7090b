-- The types of delayed jobs, each by the last due time of its jobs: those come into line by themselves, so
-- that enqueue bounds their types like those in line. A type goes when no delayed job can be its own any
-- more; one whose jobs were cancelled may count until their time has come.
local function keep_later(job_type, due) redis.pcall('ZADD', prefix .. 'later', 'GT', exact(due), job_type) end
local function prune_later()
  local head = redis.pcall('ZRANGE', prefix .. 'scheduled', 0, 0, 'WITHSCORES')
  if head.err then return end
  redis.pcall('ZREMRANGEBYSCORE', prefix .. 'later', '-inf', head[2] and '(' .. head[2] or '+inf')
end
