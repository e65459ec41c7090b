#!lua flags=no-writes
-- show: everything that is kept of a job
-- Reads only. A job that left only its stub answers its state and finish time.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ITEMS  item         id str
-- REPLY  per item     fields of the hash, history lines, log lines
-- @include _ended
local function list(name)
  local lines = redis.pcall('LRANGE', prefix .. name, 0, -1)
  return lines.err and {} or lines
end
local replies = {}
for i = 1, item_count do
  local id = item(i)
  local fields = redis.pcall('HGETALL', prefix .. 'job:' .. id)
  if fields.err then
    fields = { 'state', 'broken' }
  elseif #fields == 0 then
    local state, finished = stub_of(id)
    if state then fields = { 'state', state, 'finished_at', finished, 'stub', '1' } end
  end
  replies[i] = { fields, list('history:' .. id), list('log:' .. id) }
end
return replies
