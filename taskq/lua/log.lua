#!lua
-- log: lines that a running job tells
-- Moves no job; refused, without creating a key, once the run is over or no longer the caller's. `seq` numbers
-- the lines of a run, upwards: one that is not above the last stored was appended by an earlier try. The last
-- 200 lines are kept. Carries no allow-oom: with memory full lines are refused, and jobs go on.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   worker       str
-- ITEMS  item         id str, fence str, seq int, line json
-- REPLY  per item     OK | STALE | BROKEN
-- @include _clock _config _stats
local replies, told, types, runs = {}, {}, {}, {}
local function look(id)
  local v = redis.pcall('HMGET', prefix .. 'job:' .. id, 'state', 'worker', 'fence', 'log_seq', 'type')
  if v.err or v[1] ~= 'running' or v[2] ~= worker then return {} end
  local of, last = string.match(v[4] or '', '^(%d+):(%d+)$')
  return { fence = v[3], last = of == v[3] and tonumber(last) or 0, type = v[5] or '' }
end
for i = 1, item_count do
  local id, fence, seq, line = item(i)
  local run = runs[id] or look(id)
  runs[id] = run
  if run.fence ~= fence then
    replies[i] = 'STALE'
  elseif seq <= run.last then
    replies[i] = 'OK'
  else
    local length = redis.pcall('RPUSH', prefix .. 'log:' .. id, line)
    if type(length) ~= 'number' then
      replies[i] = 'BROKEN'
    else
      if not run.length then
        told[#told + 1] = id
        types[#told] = run.type
      end
      run.last, run.length = seq, length
      replies[i] = 'OK'
    end
  end
end
for i = 1, #told do
  local id, run = told[i], runs[told[i]]
  redis.call('HSET', prefix .. 'job:' .. id, 'log_seq', run.fence .. ':' .. int_text(run.last))
  if run.length > 200 then redis.call('LTRIM', prefix .. 'log:' .. id, -200, -1) end
end
tell('log', told, types)
return replies
