#!lua flags=no-writes
-- position: where a job stands, and who stands before it
-- Reads only: one count in each line of the queue, O(log n) however deep it is.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   id           str
-- REPLY  now, fields of the job, its score or due time, jobs before it by type, aging_ms, paused, paused types
-- @include _clock _config _types
local FIELDS = { 'state', 'type', 'priority', 'created_at', 'eligible_at', 'failures', 'started_at', 'worker', 'cancel' }
local job, fields, place, lines = redis.pcall('HMGET', prefix .. 'job:' .. id, unpack(FIELDS)), {}, '', {}
for i = 1, job.err and 0 or #FIELDS do
  if job[i] then
    fields[#fields + 1] = FIELDS[i]
    fields[#fields + 1] = job[i]
  end
end
local state, own = job[1], job[2] or ''
if state == 'scheduled' or state == 'retrying' then
  place = redis.pcall('ZSCORE', prefix .. state, id)
elseif state == 'queued' then
  place = redis.pcall('ZSCORE', prefix .. 'ready:' .. own, id)
  local types = type(place) == 'string' and waiting_types() or {}
  for i = 1, #types do
    local line = prefix .. 'ready:' .. types[i]
    local n
    if types[i] == own then n = redis.call('ZRANK', line, id) else n = redis.pcall('ZCOUNT', line, '-inf', '(' .. place) end
    if type(n) == 'number' and n > 0 then lines[#lines + 1] = { types[i], n } end
  end
end
if type(place) ~= 'string' then place = '' end
return { exact(NOW), fields, place, lines, AGING, PAUSED and 1 or 0, CONFIG[3] or '' }
