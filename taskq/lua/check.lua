#!lua flags=no-writes
-- check: does each id stand in the one place its state names?
-- Reads only. For every id that does not: what is wrong, in words.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ITEMS  item         id str
-- REPLY  pairs of id and finding
-- @include _ended
local SETS = { 'scheduled', 'retrying', 'blocked', 'succeeded', 'failed', 'cancelled' }
local findings = {}
local function found(id, what)
  findings[#findings + 1] = id
  findings[#findings + 1] = what
end
local function stands(id, name)
  local score = redis.pcall('ZSCORE', prefix .. name, id)
  if type(score) == 'table' and score.err then return false end
  return score and true or false
end
for i = 1, item_count do
  local id = item(i)
  local v = redis.pcall('HMGET', prefix .. 'job:' .. id, 'state', 'type', 'worker', 'stub', 'unique', 'fence', 'cancel', 'expires_at')
  if v.err then
    found(id, 'job is not a hash')
  else
    local state, places = v[1], {}
    for j = 1, #SETS do if stands(id, SETS[j]) then places[#places + 1] = SETS[j] end end
    if v[2] and stands(id, 'ready:' .. v[2]) then places[#places + 1] = 'queued' end
    local listed = v[3] and redis.pcall('LPOS', prefix .. 'processing:' .. v[3], id, 'COUNT', 0) or {}
    if type(listed) ~= 'table' or listed.err then listed = {} end
    for _ = 1, #listed do places[#places + 1] = 'running' end
    if not state then
      if #places > 0 then found(id, 'no job, but stands in ' .. table.concat(places, ', ')) end
    elseif v[4] then
      if not stands(id, 'stubs:' .. state) then found(id, 'stub that is not in stubs:' .. state) end
    elseif #places ~= 1 or places[1] ~= state then
      found(id, 'state is ' .. state .. ', but stands in ' .. (#places > 0 and table.concat(places, ', ') or 'no place'))
    end
    if state == 'queued' and redis.pcall('SISMEMBER', prefix .. 'lines', v[2] or '') ~= 1 then
      found(id, 'waits in a line that is not in lines')
    end
    if state == 'running' and not v[6] then found(id, 'runs without a fence') end
    if state == 'running' and redis.pcall('HEXISTS', prefix .. 'holders', v[3] or '') ~= 1 then
      found(id, 'its worker is not in holders')
    end
    if state and not ends[state] and redis.pcall('TTL', prefix .. 'job:' .. id) ~= -1 then found(id, 'live job with a TTL') end
    if state and not ends[state] and v[8] and not stands(id, 'expiring') then found(id, 'expires, but is not in expiring') end
    local stopping = redis.pcall('SISMEMBER', prefix .. 'cancelling', id) == 1
    if stopping and (state ~= 'running' or not v[7]) then found(id, 'in cancelling, but not asked to stop') end
    if state == 'running' and v[7] and not stopping then found(id, 'asked to stop, but not in cancelling') end
    if v[5] and state and not ends[state] and redis.pcall('GET', prefix .. 'unique:' .. v[5]) ~= id then
      found(id, 'does not hold its unique key')
    end
  end
end
return findings
