#!lua flags=no-writes
-- page: a page of the jobs of one state
-- Reads only, at most `budget` entries however many there are. Waiting jobs come next to run first, ended
-- ones newest first. `box`, `score` and `id` say where the last page ended ('' at the start): the next one
-- goes on behind that entry, or behind the place that it had if it has left it.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   state        str
-- ARGV   job_type     str     only this type; '' for all
-- ARGV   limit        int     jobs at most
-- ARGV   budget       int     entries looked at, at most
-- ARGV   box          str
-- ARGV   score        str
-- ARGV   id           str
-- ARGV   fingerprint  str     only failures of this kind, `unknown` for those without one; '' for all
-- ARGV   since        str     only what ended (or, alive, was stored) at or after this, ms; '' for all
-- ARGV   before       str     and before this; '' for all
-- REPLY  names of fields; jobs: a value (or nil) for each of these, and the id; entries looked at; box, score, id
--        of the next page ('' at the end)
-- @include _ended _types
local FIELDS = { 'state', 'type', 'priority', 'attempts', 'failures', 'crashes', 'lost', 'created_at', 'eligible_at',
  'started_at', 'finished_at', 'worker', 'reason', 'cancel', 'fence', 'fingerprint' }
local CREATED, FINISHED, FINGERPRINT = 8, 11, 16
local boxes = {}
if state == 'queued' then
  local types = job_type ~= '' and { job_type } or waiting_types()
  for i = 1, #types do boxes[i] = 'ready:' .. types[i] end
elseif state == 'running' then
  local holders = redis.pcall('HKEYS', prefix .. 'holders')
  if not holders.err then
    table.sort(holders)
    for i = 1, #holders do boxes[i] = 'processing:' .. holders[i] end
  end
else
  boxes[1] = state
end
local jobs, looked = {}, 0
local RANGE, RANK = 'ZRANGE', 'ZRANK'
if ends[state] then RANGE, RANK = 'ZREVRANGE', 'ZREVRANK' end
-- Ids that tie stand in the order of their bytes: Lua's own comparison goes by the server's locale.
local function precedes(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end
-- The rank behind the last entry. One that has gone, or stands elsewhere now, was behind all with a score that
-- comes sooner; its place among those that tie with it is found by halving.
local function rank_behind(key, last_score, last_id)
  local rank = redis.pcall(RANK, key, last_id)
  if type(rank) == 'number' and redis.call('ZSCORE', key, last_id) == last_score then return rank + 1 end
  local low
  if ends[state] then
    low = redis.pcall('ZCOUNT', key, '(' .. last_score, '+inf')
  else
    low = redis.pcall('ZCOUNT', key, '-inf', '(' .. last_score)
  end
  -- No number, so that it is no cursor of ours: from the start.
  if type(low) ~= 'number' then return 0 end
  local high = low + redis.call('ZCOUNT', key, last_score, last_score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local other = redis.call(RANGE, key, middle, middle)[1]
    local behind
    if ends[state] then behind = precedes(other, last_id) else behind = precedes(last_id, other) end
    if behind then high = middle else low = middle + 1 end
  end
  return low
end
-- Where a box is read from, counted from 0.
local function place_behind(name, last_score, last_id)
  if last_score == '' then return 0 end
  local key = prefix .. name
  if state ~= 'running' then return rank_behind(key, last_score, last_id) end
  -- Runs that ended since stood before it, or it is one of them: then its old place has to do.
  local place = redis.pcall('LPOS', key, last_id)
  return type(place) == 'number' and place + 1 or tonumber(last_score) or 0
end
-- Pairs of id and score; of a worker's list, of id and place.
local function entries(name, from, n)
  local key = prefix .. name
  if state ~= 'running' then
    local found = redis.pcall(RANGE, key, from, from + n - 1, 'WITHSCORES')
    return found.err and {} or found
  end
  local ids, out = redis.pcall('LRANGE', key, from, from + n - 1), {}
  if ids.err then return {} end
  for i = 1, #ids do
    out[#out + 1] = ids[i]
    out[#out + 1] = tostring(from + i)
  end
  return out
end
local function matches(v)
  if fingerprint ~= '' and (v[FINGERPRINT] or 'unknown') ~= fingerprint then return false end
  local at = tonumber(ends[state] and v[FINISHED] or v[CREATED]) or 0
  return (since == '' or at >= tonumber(since)) and (before == '' or at < tonumber(before))
end
for b = 1, #boxes do
  local name = boxes[b]
  if box == '' or name >= box then
    local from_score, from_id = '', ''
    if name == box then from_score, from_id = score, id end
    local place = place_behind(name, from_score, from_id)
    repeat
      -- No more than fill the page, and one by which to know that it goes on; of those that are filtered a few.
      local n = math.min(budget - looked, math.max(limit - #jobs + 1, 20))
      local found = entries(name, place, n)
      for i = 1, #found, 2 do
        if #jobs == limit then return { FIELDS, jobs, looked, name, from_score, from_id } end
        -- Newest first: all that follow are older still.
        if since ~= '' and ends[state] and tonumber(found[i + 1]) < tonumber(since) then
          return { FIELDS, jobs, looked, '', '', '' }
        end
        looked = looked + 1
        from_score, from_id = found[i + 1], found[i]
        local v = redis.pcall('HMGET', prefix .. 'job:' .. found[i], unpack(FIELDS))
        if not v.err and v[1] == state and (job_type == '' or v[2] == job_type) and matches(v) then
          v[#FIELDS + 1] = found[i]
          jobs[#jobs + 1] = v
        end
      end
      if looked == budget then return { FIELDS, jobs, looked, name, from_score, from_id } end
      place = place + n
    until #found < 2 * n
  end
end
return { FIELDS, jobs, looked, '', '', '' }
