#!lua flags=no-writes
-- errors: the kinds of failures of a queue
-- Reads only, at most the 200 kinds that are kept: the latest first, or the one that is named.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   fingerprint  str     only this kind; '' for all
-- REPLY  fingerprint and fields of each
local found = fingerprint ~= '' and { fingerprint } or redis.pcall('ZREVRANGE', prefix .. 'errors', 0, 199)
local groups = {}
for i = 1, found.err and 0 or #found do
  local fields = redis.pcall('HGETALL', prefix .. 'error:' .. found[i])
  if not fields.err and #fields > 0 then groups[#groups + 1] = { found[i], fields } end
end
return groups
