#!lua flags=allow-oom
-- reconcile: running -> queued | cancelled
-- The worker says what it holds: every claimed job whose exit is not yet acknowledged. What stands in its
-- list from calls up to `answered` and is not held goes back in line, burning nothing: its answer was
-- lost. What it holds and is not its own (any more) is answered, to be stopped; not so a run whose report
-- came in already, and whose answer is on its way.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   worker       str
-- ARGV   answered     int     number of the last claim whose answer has arrived
-- ITEMS  item         id str, fence str
-- REPLY  whole        OK | LOST | BROKEN_KEY
-- @include _clock _config _stats _bulk _history _lines _job _ended _close _requeue
local death = redis.pcall('ZSCORE', prefix .. 'dead', worker)
if type(death) == 'table' then return { 'BROKEN_KEY' } end
if death then return { 'LOST' } end
local list = prefix .. 'processing:' .. worker
local ids = redis.pcall('LRANGE', list, 0, 1999)
if ids.err then return { 'BROKEN_KEY' } end
local held, standing, not_mine, released = {}, {}, {}, 0
local function reported(job, fence)
  return (ends[job.state] and job.worker == worker and job.fence == fence) or
    string.match(job.left or '', '^%d+') == fence
end
for i = 1, item_count do
  local id = item(i)
  held[id] = true
end
for i = 1, #ids do
  local id = ids[i]
  standing[id] = true
  if not held[id] then
    local job, why = read_job(id)
    if not job then
      quarantine(id, 'processing', why == 'WRONGTYPE' and 'not a hash' or 'no job')
      redis.call('LREM', list, 1, id)
    elseif job.state ~= 'running' or job.worker ~= worker then
      redis.call('LREM', list, 1, id)
    elseif (job.call or 0) <= answered and
      requeue(id, job, 'released', ',"worker":"' .. worker .. '","reason":"not held"', {}) then
      redis.call('LREM', list, 1, id)
      released = released + 1
    end
  end
end
for i = 1, item_count do
  local id, fence = item(i)
  local job = read_job(id)
  if not (job and owned(job, worker, fence)) then
    if not (job and reported(job, fence)) then not_mine[#not_mine + 1] = id end
  elseif not standing[id] and #ids < 2000 then
    redis.call('RPUSH', list, id)
  end
end
flush_lines()
flush_closed()
if released > 0 then count('reconciled', released) end
flush_stats()
return { 'OK', released, not_mine }
