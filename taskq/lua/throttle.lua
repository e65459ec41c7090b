#!lua flags=allow-oom
-- throttle: one more request of an API key, if its rate allows it
-- Moves no job, and each call is a request: it is never sent again. The key holds when all of the rate will be
-- there again; a time further ahead than that can be (a clock set back) counts as now.
-- KEYS   bucket       <namespace>:rate:<key id>
-- ARGV   now          ms      '' for the server's clock
-- ARGV   requests     int     at once, at most
-- ARGV   period       int     ms in which they are all there again
-- REPLY  ms until the next one is allowed; 0: this one is
-- @include _clock
local step = period / requests
local full_at = redis.pcall('GET', bucket)
full_at = type(full_at) == 'string' and tonumber(full_at) or NOW
-- Sums of doubles: a bucket that is exactly empty must not be taken for an impossible one, nor for a fuller one.
if not (full_at > NOW and full_at <= NOW + period + 1) then full_at = NOW end
full_at = full_at + step
local over = full_at - NOW - period
if over > 0.001 then return math.max(1, math.ceil(over)) end
redis.call('SET', bucket, exact(full_at), 'PX', math.max(1, math.ceil(full_at - NOW)))
return 0
