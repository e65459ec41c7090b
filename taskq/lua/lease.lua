#!lua flags=allow-oom
-- lease: the record of a client that claims over HTTP
-- Moves no job. Written before the claim: who asked, under which worker id, and for how long. With a `key`
-- (the digest of an idempotency key) the same request again answers the lease that it has opened before,
-- with what became of its claim; another request under it is refused. A closed one makes room for a new one.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   record       str     digest of the lease's id: the name of its record
-- ARGV   lease        str     its id, which only the client is told
-- ARGV   worker       str
-- ARGV   owner        str     '' where no API key is asked for
-- ARGV   label        str     a name that the client gave, or ''
-- ARGV   lease_ms     int
-- ARGV   key          str     '' for none
-- ARGV   request      str     digest of what was asked for
-- ARGV   keep_ms      int     until the record goes, unless there is a sign of life
-- REPLY  whole        OK | CONFLICT | BROKEN_KEY
-- @include _clock
if key ~= '' then
  local known = redis.pcall('GET', prefix .. 'lease-key:' .. key)
  if type(known) == 'table' then return { 'BROKEN_KEY', 'lease-key' } end
  if known then
    local v = redis.pcall('HMGET', prefix .. 'lease:' .. known, 'lease', 'worker', 'claim', 'request', 'lease_ms')
    if v.err then return { 'BROKEN_KEY', 'lease' } end
    if v[1] and v[3] ~= 'closed' then
      if v[4] ~= request then return { 'CONFLICT' } end
      return { 'OK', known, v[1], v[2] or '', v[3] or '' }
    end
  end
end
local name = prefix .. 'lease:' .. record
if type(redis.pcall('HLEN', name)) ~= 'number' then return { 'BROKEN_KEY', 'lease' } end
redis.call('HSET', name, 'lease', lease, 'worker', worker, 'owner', owner, 'label', label, 'lease_ms', lease_ms,
  'key', key, 'request', request, 'opened_at', NOW_MS)
redis.call('PEXPIRE', name, keep_ms)
if key ~= '' then redis.call('SET', prefix .. 'lease-key:' .. key, record, 'PX', keep_ms) end
return { 'OK', record, lease, worker, '' }
