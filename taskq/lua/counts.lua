#!lua flags=no-writes
-- counts: one look at a queue
-- Reads only. Pairs of name and number, then the waiting types with the depth and head of their lines.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- REPLY  now, counts, types, settings
-- @include _clock _types
local counts, queued, running = {}, 0, 0
local function put(name, value)
  counts[#counts + 1] = name
  counts[#counts + 1] = value
end
local lines, types = waiting_types(), {}
for i = 1, #lines do
  local key = prefix .. 'ready:' .. lines[i]
  local n = redis.pcall('ZCARD', key)
  if type(n) == 'number' and n > 0 then
    queued = queued + n
    local head = redis.call('ZRANGE', key, 0, 0)[1]
    local since = redis.pcall('HMGET', prefix .. 'job:' .. head, 'eligible_at', 'created_at')
    types[#types + 1] = { lines[i], n, since[1] or since[2] or '' }
  end
end
local holders = redis.pcall('HKEYS', prefix .. 'holders')
if holders.err then holders = {} end
for i = 1, #holders do
  local n = redis.pcall('LLEN', prefix .. 'processing:' .. holders[i])
  if type(n) == 'number' then running = running + n end
end
put('queued', queued)
put('running', running)
for _, name in ipairs({ 'scheduled', 'retrying', 'blocked', 'succeeded', 'failed', 'cancelled' }) do
  local n = redis.pcall('ZCARD', prefix .. name)
  put(name, type(n) == 'number' and n or 0)
end
put('workers', #holders)
local broken = redis.pcall('HLEN', prefix .. 'quarantine')
put('quarantined', type(broken) == 'number' and broken or 0)
local settings = redis.pcall('HGETALL', prefix .. 'config')
return { exact(NOW), counts, types, settings.err and {} or settings }
