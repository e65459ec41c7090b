-- Moves what is due to its line, at most `limit` of each set; answers the next due time or nil. What cannot
-- be placed is tried again in a while, so that it does not stand before the others for ever.
local PUT_OFF_MS = 10000
local function due_of(name, limit)
  local key = prefix .. name
  local head = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
  if head.err or not head[1] then return nil, 0 end
  if tonumber(head[2]) > NOW then return tonumber(head[2]), 0 end
  local due = redis.call('ZRANGEBYSCORE', key, '-inf', NOW, 'WITHSCORES', 'LIMIT', 0, limit)
  local gone, moved, put_off = {}, 0, {}
  for i = 1, #due, 2 do
    local id, at = due[i], tonumber(due[i + 1])
    local job, why = read_job(id)
    if not job then
      gone[#gone + 1] = id
      if why == 'WRONGTYPE' then quarantine(id, name, 'not a hash') else quarantine(id, name, 'no job') end
    elseif job.state ~= name then
      gone[#gone + 1] = id
    elseif line_depth(job.type) then
      gone[#gone + 1] = id
      moved = moved + 1
      redis.call('HSET', prefix .. 'job:' .. id, 'state', 'queued', 'eligible_at', int_text(math.floor(at)))
      line_add(job.type, id, line_score(at, job.priority))
    else
      put_off[#put_off + 1] = NOW + PUT_OFF_MS
      put_off[#put_off + 1] = id
    end
  end
  if #gone > 0 then bulk('ZREM', key, gone) end
  if #put_off > 0 then bulk('ZADD', key, put_off) end
  local next_head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return tonumber(next_head[2]), moved
end
local function promote(limit)
  local scheduled, n = due_of('scheduled', limit)
  local retrying, m = due_of('retrying', limit)
  flush_lines()
  local due = scheduled
  if retrying and (not due or retrying < due) then due = retrying end
  return due, n + m
end
