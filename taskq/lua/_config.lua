-- The settings of the queue, read once a script. A broken key, or a value that is no number, counts as
-- not set: settings can be written with redis-cli.
local CONFIG = redis.pcall('HMGET', prefix .. 'config', 'aging_ms', 'paused', 'paused_types', 'max_depth',
  'listen_until', 'min_protocol', 'dedup_seconds', 'dedup_max')
if CONFIG.err then CONFIG = {} end
local AGING = tonumber(CONFIG[1]) or 10000
local PAUSED = CONFIG[2] == '1'
local LISTENED = (tonumber(CONFIG[5]) or 0) > NOW
local DEDUP_MS = (tonumber(CONFIG[7]) or 600) * 1000
local DEDUP_MAX = tonumber(CONFIG[8]) or 1000000
