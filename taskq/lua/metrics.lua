#!lua flags=no-writes
-- metrics: a queue's counters since ever, and how far its duties are behind
-- Reads only. The counters are those of all finished minutes and of the open ones, in one look, so that none is
-- missed or taken twice while a janitor adds them up.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- REPLY  now, counters (pairs), first due time in ms or '', dedup window in ms, ticks (pairs of duty and ms)
-- @include _clock _config _minutes
local sums = open_minutes(true)
local kept = redis.pcall('HGETALL', prefix .. 'counters')
if not kept.err then
  for i = 1, #kept, 2 do
    if string.sub(kept[i], 1, 5) ~= 'seen:' then
      sums[kept[i]] = (sums[kept[i]] or 0) + (tonumber(kept[i + 1]) or 0)
    end
  end
end
local counters = {}
for field, n in pairs(sums) do
  counters[#counters + 1] = field
  counters[#counters + 1] = int_text(n)
end
local due = ''
for _, name in ipairs({ 'scheduled', 'retrying' }) do
  local head = redis.pcall('ZRANGE', prefix .. name, 0, 0, 'WITHSCORES')
  if head[2] and (due == '' or tonumber(head[2]) < tonumber(due)) then due = head[2] end
end
-- Shorter than it was set where stubs are capped by number, or were dropped as memory was short.
local window = DEDUP_MS
for _, state in ipairs({ 'succeeded', 'failed', 'cancelled' }) do
  local key = prefix .. 'stubs:' .. state
  local have = redis.pcall('ZCARD', key)
  if type(have) == 'number' and have >= DEDUP_MAX and have > 0 then
    window = math.min(window, NOW - tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]))
  end
end
local marks, ticks = redis.pcall('HGETALL', prefix .. 'ticks'), {}
for i = 1, marks.err and 0 or #marks, 2 do
  local duty, at = string.match(marks[i], '^tick:(.*)$'), tonumber(marks[i + 1])
  if duty and at then
    ticks[#ticks + 1] = duty
    ticks[#ticks + 1] = marks[i + 1]
  elseif marks[i] == 'stubs_dropped_at' and at then
    window = math.min(window, math.max(0, NOW - at))
  end
end
return { exact(NOW), counters, due, exact(math.max(0, window)), ticks }
