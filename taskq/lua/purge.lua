#!lua flags=allow-oom
-- purge: scheduled | queued | retrying -> cancelled
-- Cancels waiting jobs of the named states with the reason `purged`, a page a call; call until more = 0.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   limit        int     jobs at most
-- ARGV   job_type     str     only this type; '' for all
-- ITEMS  wanted_state state str
-- REPLY  jobs purged, more (0 or 1)
-- REPLY  whole        BROKEN_KEY
-- @include _clock _config _stats _bulk _history _lines _job _close _trim _each_waiting
local wanted, done, looked, more, told = {}, 0, 0, 0, {}
for i = 1, wanted_state_count do wanted[wanted_state(i)] = true end
if not can_close('cancelled') then return redis.error_reply('BROKEN_KEY cancelled') end
for _, box in ipairs(waiting_containers(wanted)) do
  if (job_type == '' or not box.type or box.type == job_type) and readable_zset(box.name) then
    local gone = {}
    local ids = redis.call('ZRANGE', prefix .. box.name, 0, math.max(0, limit - looked - 1))
    if looked >= limit then ids = {} more = 1 end
    if #ids > 0 and #ids == limit - looked then more = 1 end
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
        close(id, job, 'cancelled', { 'reason', 'purged' })
        done = done + 1
        told[#told + 1] = id
      end
    end
    if #gone > 0 then
      bulk('ZREM', prefix .. box.name, gone)
      if box.type then line_taken(box.type) end
    elseif #ids > 0 then
      more = 0
    end
  end
end
flush_closed()
if done > 0 then
  trim('cancelled', done + 1, false)
  trim_stubs('cancelled', done + 1)
end
flush_stats()
tell('cancelled', told)
return { done, more }
