-- What left the ordinary path, a JSON line each, at most 50. `extra` is JSON members made by the caller
-- from its own words; user data gets in only as JSON that the library has made.
local function history(id, event, extra)
  local key = prefix .. 'history:' .. id
  local line = '{"at":' .. int_text(NOW_MS) .. ',"event":"' .. event .. '"' .. (extra or '') .. '}'
  local length = redis.pcall('RPUSH', key, line)
  if type(length) == 'number' and length > 50 then redis.call('LTRIM', key, -50, -1) end
end
-- Sets a broken item aside: what it was, where it stood and why, for doctor and people.
local function quarantine(id, from, reason)
  redis.pcall('HSET', prefix .. 'quarantine', id,
    '{"at":' .. int_text(NOW_MS) .. ',"from":"' .. from .. '","reason":"' .. reason .. '"}')
  count('quarantined', 1)
end
