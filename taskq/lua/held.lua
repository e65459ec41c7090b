#!lua flags=no-writes
-- held: what a worker holds
-- Reads only: the lease's end and the runs, oldest first, with what a claim has answered of them (payloads
-- only where asked for), when each began and whether it was asked to stop.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   worker       str
-- ARGV   full         flag    with payloads
-- REPLY  whole        OK | LOST | BROKEN_KEY
-- @include _clock
local death, lease = redis.pcall('ZSCORE', prefix .. 'dead', worker), redis.pcall('ZSCORE', prefix .. 'leases', worker)
if type(death) == 'table' then return { 'BROKEN_KEY', 'dead' } end
if type(lease) == 'table' then return { 'BROKEN_KEY', 'leases' } end
if death then return { 'LOST' } end
local ids = redis.pcall('LRANGE', prefix .. 'processing:' .. worker, 0, 249)
if ids.err then return { 'BROKEN_KEY', 'processing' } end
local runs = {}
for i = 1, #ids do
  local key = prefix .. 'job:' .. ids[i]
  local v = redis.pcall('HMGET', key, 'state', 'worker', 'fence', 'type', 'attempts', 'failures', 'crashes', 'lost',
    'max_attempts', 'timeout_ms', 'created_at', 'priority', 'result_ttl_ms', 'started_at', 'cancel')
  if not v.err and v[1] == 'running' and v[2] == worker and v[3] then
    runs[#runs + 1] = { ids[i], v[3], v[4] or '', full and redis.call('HGET', key, 'payload') or '', v[5] or '1',
      v[6] or '0', v[7] or '0', v[8] or '0', v[9] or '', v[10] or '', v[11] or '0', v[12] or '0', v[13] or '',
      v[14] or '', v[15] and 1 or 0 }
  end
end
return { 'OK', exact(NOW), lease or '', runs }
