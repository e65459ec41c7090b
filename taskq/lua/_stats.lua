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
-- An entry has at most 100 ids, and their types in the same order, or the one that all have ('-' for none). The
-- stream is cut by the size of what comes in, so that it holds about 16 MiB at most.
local EVENT_IDS, EVENTS_KEPT, EVENTS_BYTES = 100, 10000, 16777216
local function tell(event, ids, types)
  if not LISTENED then return end
  for from = 1, #ids, EVENT_IDS do
    local to = math.min(from + EVENT_IDS - 1, #ids)
    local named, one = {}, types[from]
    for i = from, to do
      named[#named + 1] = types[i] == '' and '-' or types[i]
      if types[i] ~= one then one = nil end
    end
    local jobs = table.concat(ids, ' ', from, to)
    local its = one and named[1] or table.concat(named, ' ')
    redis.pcall('XADD', prefix .. 'events', 'MAXLEN', '~',
      math.min(EVENTS_KEPT, math.ceil(EVENTS_BYTES / (#jobs + #its + 100))), '*',
      'event', event, 'count', to - from + 1, 'jobs', jobs, 'types', its)
  end
end
-- Said wherever a state is set. Told is the last one, once, whatever a job goes through in a call.
local states, types_of, changed = {}, {}, {}
local function became(id, state, job_type)
  if not LISTENED then return end
  if not states[id] then changed[#changed + 1] = id end
  states[id] = state
  types_of[id] = job_type
end
local function flush_states()
  local ids, types, order = {}, {}, {}
  for i = 1, #changed do
    local id = changed[i]
    local state = states[id]
    if not ids[state] then
      ids[state], types[state] = {}, {}
      order[#order + 1] = state
    end
    table.insert(ids[state], id)
    table.insert(types[state], types_of[id])
  end
  for i = 1, #order do tell(order[i], ids[order[i]], types[order[i]]) end
end
-- A minute has at most STAT_FIELDS fields and those of the type `other`, under which is counted what finds no room.
-- Looked at only where a field is new in its minute.
local STAT_FIELDS = 2000
local function make_room(key, fresh)
  local have = redis.pcall('HLEN', key)
  if type(have) ~= 'number' then return end
  for i = #fresh, math.max(1, #fresh - (have - STAT_FIELDS) + 1), -1 do
    local word, rest = string.match(fresh[i], '^([%a_]+):[^:]*(.*)$')
    if word then
      redis.call('HDEL', key, fresh[i])
      redis.call('HINCRBY', key, word .. ':other' .. rest, counted[fresh[i]])
    end
  end
end
local function flush_stats()
  local key = prefix .. 'stats:' .. int_text(math.floor(NOW / 60000))
  local fresh = {}
  for i = 1, #counted_order do
    local field = counted_order[i]
    local total = redis.pcall('HINCRBY', key, field, counted[field])
    if total == counted[field] then fresh[#fresh + 1] = field end
  end
  if #fresh > 0 then
    redis.pcall('EXPIRE', key, 10800)
    make_room(key, fresh)
  end
  flush_states()
end
