#!lua flags=allow-oom
-- purge: scheduled | queued | retrying -> cancelled
-- Cancels waiting jobs of the named states with the reason `purged`, a page a call. Jobs of other types stay
-- at the head of sets of all types: the next page starts behind them.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   limit        int     jobs at most
-- ARGV   job_type     str     only this type; '' for all
-- ARGV   page         int     1, then what the last page answered
-- ITEMS  wanted_state state str
-- REPLY  jobs purged, next page (0 at the end)
-- REPLY  whole        BROKEN_KEY
-- @include _clock _config _stats _bulk _history _lines _job _ended _close _trim _types
local wanted, boxes, done, looked, more = {}, {}, 0, 0, false
local skip, standing = page - 1, 0
for i = 1, wanted_state_count do wanted[wanted_state(i)] = true end
if not can_close('cancelled') then return redis.error_reply('BROKEN_KEY cancelled') end
if wanted.queued then
  local types = job_type ~= '' and { job_type } or waiting_types()
  for i = 1, #types do boxes[i] = { state = 'queued', name = 'ready:' .. types[i], type = types[i] } end
end
-- Lines that are emptied make others visible.
local hidden = #boxes == MOST_TYPES
for _, name in ipairs({ 'scheduled', 'retrying', 'blocked' }) do
  if wanted[name] then boxes[#boxes + 1] = { state = name, name = name } end
end
for _, box in ipairs(boxes) do
  if readable_zset(box.name) then
    local from, budget, gone = 0, limit - looked, {}
    if not box.type then from = math.min(skip, redis.call('ZCARD', prefix .. box.name)) end
    skip = skip - from
    local ids = budget > 0 and redis.call('ZRANGE', prefix .. box.name, from, from + budget - 1) or {}
    looked = looked + #ids
    for i = 1, #ids do
      local id = ids[i]
      local job, why = read_job(id)
      if not job then
        quarantine(id, box.name, why == 'WRONGTYPE' and 'not a hash' or 'no job')
        gone[#gone + 1] = id
      elseif job.state ~= box.state then
        gone[#gone + 1] = id
      elseif job_type == '' or job.type == job_type then
        gone[#gone + 1] = id
        history(id, 'cancelled')
        close(id, job, 'cancelled', { 'reason', 'purged' })
        done = done + 1
      end
    end
    standing = standing + from + #ids - #gone
    if #gone > 0 then
      bulk('ZREM', prefix .. box.name, gone)
      if box.type then line_taken(box.type) end
    end
    if #ids >= budget then
      more = true
      break
    end
  end
end
flush_closed()
trim_grown(closed)
flush_stats()
return { done, (more or hidden and done > 0) and standing + 1 or 0 }
