#!lua flags=allow-oom
-- configure: sets or clears settings of the queue, pause and resume among them
-- Moves no job. An empty value clears the setting. Whatever may have made work claimable wakes workers.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ITEMS  item         field str, value str
-- REPLY  whole        OK | BROKEN_KEY
-- @include _clock _config _stats _lines _types
if type(redis.pcall('HLEN', prefix .. 'config')) ~= 'number' then return redis.error_reply('BROKEN_KEY config') end
for i = 1, item_count do
  local field, value = item(i)
  if value == '' then
    redis.call('HDEL', prefix .. 'config', field)
  else
    redis.call('HSET', prefix .. 'config', field, value)
  end
end
local types = waiting_types()
for i = 1, #types do wake(types[i], 64) end
return 'OK'
