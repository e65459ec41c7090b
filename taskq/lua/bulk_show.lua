#!lua flags=no-writes
-- bulk_show: bulk actions of a queue
-- Reads only: the one that is named, or those that go on and the last 100 that ended, latest start first.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   bulk_id      str     '' for all
-- REPLY  id and fields of each
local found, out = {}, {}
if bulk_id ~= '' then
  found[1] = bulk_id
else
  for _, name in ipairs({ 'bulks', 'bulks-ended' }) do
    local page = redis.pcall('ZREVRANGE', prefix .. name, 0, 99)
    for i = 1, page.err and 0 or #page do found[#found + 1] = page[i] end
  end
end
for i = 1, #found do
  local fields = redis.pcall('HGETALL', prefix .. 'bulk:' .. found[i])
  if not fields.err and #fields > 0 then out[#out + 1] = { found[i], fields } end
end
return out
