#!lua flags=no-writes
-- page: a page of the jobs of one state
-- Reads only, at most `budget` entries however many there are. Waiting jobs come next to run first, ended
-- ones newest first. `box`, `score` and `id` say where the last page ended ('' at the start).
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   state        str
-- ARGV   job_type     str     only this type; '' for all
-- ARGV   limit        int     jobs at most
-- ARGV   budget       int     entries looked at, at most
-- ARGV   box          str
-- ARGV   score        str
-- ARGV   id           str
-- REPLY  jobs, entries looked at, box, score, id of the next page ('' at the end)
local ended = { succeeded = true, failed = true, cancelled = true }
local FIELDS = { 'state', 'type', 'priority', 'attempts', 'failures', 'crashes', 'lost', 'created_at', 'eligible_at',
  'started_at', 'finished_at', 'worker', 'reason', 'cancel' }
local boxes = {}
if state == 'queued' then
  local types = job_type ~= '' and { job_type } or redis.pcall('SMEMBERS', prefix .. 'lines')
  if not types.err then
    table.sort(types)
    for i = 1, #types do boxes[i] = 'ready:' .. types[i] end
  end
elseif state == 'running' then
  local holders = redis.pcall('HKEYS', prefix .. 'holders')
  if not holders.err then
    table.sort(holders)
    for i = 1, #holders do boxes[i] = 'processing:' .. holders[i] end
  end
else
  boxes[1] = state
end
local jobs, looked = {}, 0
local function entries(name, from_score, from_id, n)
  local key = prefix .. name
  if state == 'running' then
    local from = tonumber(from_score) or 0
    local ids, out = redis.pcall('LRANGE', key, from, from + n - 1), {}
    if ids.err then return {} end
    for i = 1, #ids do
      out[#out + 1] = ids[i]
      out[#out + 1] = tostring(from + i)
    end
    return out
  end
  local command, low = 'ZRANGEBYSCORE', '-inf'
  local high = '+inf'
  if ended[state] then command, low, high = 'ZREVRANGEBYSCORE', '+inf', '-inf' end
  local found = redis.pcall(command, key, from_score ~= '' and from_score or low, high, 'WITHSCORES', 'LIMIT', 0, n + 1)
  if found.err then return {} end
  -- The page starts after the last one's end: equal scores are told apart by the id.
  local out = {}
  for i = 1, #found, 2 do
    local after = from_score == '' or found[i + 1] ~= from_score or
      (ended[state] and found[i] < from_id) or (not ended[state] and found[i] > from_id)
    if after then
      out[#out + 1] = found[i]
      out[#out + 1] = found[i + 1]
    end
  end
  return out
end
for b = 1, #boxes do
  local name = boxes[b]
  if box == '' or name >= box then
    local from_score, from_id = '', ''
    if name == box then from_score, from_id = score, id end
    local found = entries(name, from_score, from_id, budget - looked)
    for i = 1, #found, 2 do
      if #jobs == limit or looked == budget then return { jobs, looked, name, from_score, from_id } end
      looked = looked + 1
      from_score, from_id = found[i + 1], found[i]
      local v = redis.pcall('HMGET', prefix .. 'job:' .. found[i], unpack(FIELDS))
      if not v.err and v[1] == state and (job_type == '' or v[2] == job_type) then
        local row = { found[i] }
        for f = 1, #FIELDS do
          if v[f] then
            row[#row + 1] = FIELDS[f]
            row[#row + 1] = v[f]
          end
        end
        jobs[#jobs + 1] = row
      end
    end
    if looked == budget then return { jobs, looked, name, from_score, from_id } end
  end
end
return { jobs, looked, '', '', '' }
