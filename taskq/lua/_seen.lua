-- Signs of life of a queue: every heartbeat, and every look for leases that ran out, is one. Between two of them
-- half a lease or more is a silence: the server was away, or nobody was there who could have come.
local silent_from, silent_to = 0, 0
-- The lease is the caller's; the shortest one in use counts, which is the janitors' (`least_lease`).
local function note_sign_of_life(lease_ms, janitor)
  local ticks = redis.pcall('HMGET', prefix .. 'ticks', 'seen_at', 'silent_from', 'silent_to', 'least_lease')
  if ticks.err then return end
  local seen_at = tonumber(ticks[1]) or NOW_MS
  local least = math.min(lease_ms, not janitor and tonumber(ticks[4]) or lease_ms)
  silent_from, silent_to = tonumber(ticks[2]) or 0, tonumber(ticks[3]) or 0
  local new = { 'seen_at', NOW_MS }
  if NOW_MS - seen_at > least / 2 then
    silent_from, silent_to = seen_at, NOW_MS
    new[3], new[4], new[5], new[6] = 'silent_from', silent_from, 'silent_to', silent_to
  end
  -- `beat_at` is what janitors of the first version go by.
  new[#new + 1] = janitor and 'least_lease' or 'beat_at'
  new[#new + 1] = janitor and lease_ms or NOW_MS
  redis.pcall('HSET', prefix .. 'ticks', unpack(new))
end
