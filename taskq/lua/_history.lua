-- What left the ordinary path, a JSON line each, at most 50. `extra` is JSON members made by the caller
-- from its own words; user data gets in only as JSON that the library has made.
local function history(id, event, extra)
  local key = prefix .. 'history:' .. id
  local line = '{"at":' .. int_text(NOW_MS) .. ',"event":"' .. event .. '"' .. (extra or '') .. '}'
  local length = redis.pcall('RPUSH', key, line)
  if type(length) == 'number' and length > 50 then redis.call('LTRIM', key, -50, -1) end
end
-- Text that was read from Redis, fit to stand in JSON: people can write there whatever they like.
local function harmless(text) return (string.gsub(string.sub(text, 1, 200), '[^ !#-[%]^-~]', '?')) end
-- Sets a broken item aside: what it was, where it stood and why, for doctor and people. Of what is more than
-- 1,000 only the number is kept.
local function quarantine(id, from, reason)
  local key = prefix .. 'quarantine'
  local have = redis.pcall('HLEN', key)
  if type(have) == 'number' and have >= 1000 and redis.call('HEXISTS', key, id) == 0 then
    count('quarantine_full', 1)
    return
  end
  redis.pcall('HSET', key, id,
    '{"at":' .. int_text(NOW_MS) .. ',"from":"' .. harmless(from) .. '","reason":"' .. reason .. '"}')
  count('quarantined', 1)
end
