-- The counters of minutes, summed. A hash of sums has at most about MOST_FIELDS fields.
local MOST_FIELDS = 2000
-- Adds a minute to `sums`; answers how many fields it has, and how many of them were new there.
local function add_minute(sums, minute)
  local v, new = redis.pcall('HGETALL', prefix .. 'stats:' .. int_text(minute)), 0
  if v.err then return 0, 0 end
  for i = 1, #v, 2 do
    if not sums[v[i]] then new = new + 1 end
    sums[v[i]] = (sums[v[i]] or 0) + (tonumber(v[i + 1]) or 0)
  end
  return #v / 2, new
end
-- The same with at most MOST_FIELDS fields: the types that counted most keep their own, the rest is `other`.
local function fold(sums, fields)
  if fields <= MOST_FIELDS then return sums end
  local types, order, out, used = {}, {}, {}, 0
  for field, n in pairs(sums) do
    local job_type = string.match(field, '^[%a_]+:([^:]*)')
    if not job_type then
      out[field] = n
    else
      if not types[job_type] then
        types[job_type] = { name = job_type, total = 0, fields = {} }
        order[#order + 1] = types[job_type]
      end
      types[job_type].total = types[job_type].total + n
      table.insert(types[job_type].fields, field)
    end
  end
  table.sort(order, function(a, b) return a.total > b.total or (a.total == b.total and a.name < b.name) end)
  for i = 1, #order do
    local keep = used + #order[i].fields <= MOST_FIELDS
    used = used + #order[i].fields
    for _, field in ipairs(order[i].fields) do
      local word, rest = string.match(field, '^([%a_]+):[^:]*(.*)$')
      local name = keep and field or word .. ':other' .. rest
      out[name] = (out[name] or 0) + sums[field]
    end
  end
  return out
end
-- The minutes that are not in `counters` yet and are over (with `this_too` also the one that runs): sums, and the
-- first minute not looked at. At most 30 that counted something, the oldest first, so that no sum goes down.
local function open_minutes(this_too)
  local this = math.floor(NOW / 60000)
  local at = tonumber(redis.pcall('HGET', prefix .. 'ticks', 'counted')) or 0
  if at < this - 179 then at = this - 179 end
  -- The clock was set back: what is counted twice is worse than what is not.
  if at > this then at = this end
  local sums, taken = {}, 0
  while at < this + (this_too and 1 or 0) and taken < 30 do
    if add_minute(sums, at) > 0 then taken = taken + 1 end
    at = at + 1
  end
  return sums, at
end
