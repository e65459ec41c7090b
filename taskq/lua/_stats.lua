-- Counters and histograms of the minute, and events while somebody listens. Both are told after the facts
-- are written and are never worth failing for: a broken key is passed over.
local counted, counted_order = {}, {}
local function count(field, n)
  local have = counted[field]
  if not have then
    counted_order[#counted_order + 1] = field
    have = 0
  end
  counted[field] = have + n
end
-- Half-octave buckets: bucket b holds durations up to 2^(b/2) ms.
local bucket_texts = {}
local function count_duration(kind, job_type, ms)
  local bucket = 0
  if ms > 1 then bucket = math.ceil(math.log(ms) / 0.34657359027997264) end
  local text = bucket_texts[bucket]
  if not text then
    text = tostring(bucket)
    bucket_texts[bucket] = text
  end
  count(kind .. ':' .. job_type .. ':' .. text, 1)
end
local function tell(event, ids)
  if LISTENED and #ids > 0 then
    local shown = {}
    for i = 1, math.min(#ids, 100) do shown[i] = ids[i] end
    redis.pcall('XADD', prefix .. 'events', 'MAXLEN', '~', '10000', '*',
      'event', event, 'count', #ids, 'jobs', table.concat(shown, ' '))
  end
end
-- Said wherever a state is set. Told is the last one, once, whatever a job goes through in a call.
local states, changed = {}, {}
local function became(id, state)
  if not LISTENED then return end
  if not states[id] then changed[#changed + 1] = id end
  states[id] = state
end
local function flush_states()
  local ids, order = {}, {}
  for i = 1, #changed do
    local state = states[changed[i]]
    if not ids[state] then
      ids[state] = {}
      order[#order + 1] = state
    end
    table.insert(ids[state], changed[i])
  end
  for i = 1, #order do tell(order[i], ids[order[i]]) end
end
local function flush_stats()
  local key = prefix .. 'stats:' .. int_text(math.floor(NOW / 60000))
  local fresh = false
  for i = 1, #counted_order do
    local field = counted_order[i]
    local total = redis.pcall('HINCRBY', key, field, counted[field])
    if total == counted[field] then fresh = true end
  end
  if fresh then redis.pcall('EXPIRE', key, 10800) end
  flush_states()
end
