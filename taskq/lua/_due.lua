-- Jobs whose time comes later: `adds` are due times and ids for the sorted set `name`, which can be read.
-- A new earliest due time must reach workers that sleep until the old one.
local function due_add(name, adds)
  if #adds == 0 then return end
  local key = prefix .. name
  local before = redis.call('ZRANGE', key, 0, 0)[1]
  bulk('ZADD', key, adds)
  local first = redis.call('ZRANGE', key, 0, 0)[1]
  if first == before then return end
  local job_type = redis.pcall('HGET', prefix .. 'job:' .. first, 'type')
  if type(job_type) == 'string' then wake(job_type, 1) end
end
