-- The waiting lines, one per job type. `score = eligible_at - priority * aging_ms`: lowest first.
-- line_depth() is the check before the write: false when the line, or the index that an empty one must be
-- entered in, cannot be written.
local depths, additions, added_types = {}, {}, {}
local lines_count
local function count_lines()
  if lines_count == nil then
    lines_count = redis.pcall('SCARD', prefix .. 'lines')
    if type(lines_count) ~= 'number' then lines_count = false end
  end
  return lines_count
end
local function line_depth(job_type)
  local depth = depths[job_type]
  if depth == nil then
    depth = redis.pcall('ZCARD', prefix .. 'ready:' .. job_type)
    if type(depth) ~= 'number' or (depth == 0 and not count_lines()) then depth = false end
    depths[job_type] = depth
  end
  return depth
end
local function line_score(eligible, priority) return eligible - (tonumber(priority) or 0) * AGING end
local function line_add(job_type, id, score)
  local adds = additions[job_type]
  if not adds then
    adds = {}
    additions[job_type] = adds
    added_types[#added_types + 1] = job_type
  end
  adds[#adds + 1] = score
  adds[#adds + 1] = id
  became(id, 'queued', job_type)
end
-- At most 64 tokens: enough to wake every idle worker that matters, and bounded where nobody listens.
local function wake(job_type, n)
  local key = prefix .. 'wake:' .. job_type
  local have = redis.pcall('LLEN', key)
  if type(have) ~= 'number' or have >= 64 then return end
  local tokens = {}
  for i = 1, math.min(n, 64 - have) do tokens[i] = '1' end
  redis.call('LPUSH', key, unpack(tokens))
  if have == 0 then redis.call('EXPIRE', key, 60) end
end
local function flush_lines()
  for i = 1, #added_types do
    local job_type = added_types[i]
    local adds = additions[job_type]
    bulk('ZADD', prefix .. 'ready:' .. job_type, adds)
    if depths[job_type] == 0 then redis.pcall('SADD', prefix .. 'lines', job_type) end
    wake(job_type, #adds / 2)
    depths[job_type] = nil
    additions[job_type] = nil
  end
  added_types = {}
end
-- After ids were taken out of a line: an empty one leaves the index, and its tokens are worth nothing.
local function line_taken(job_type)
  if redis.call('EXISTS', prefix .. 'ready:' .. job_type) == 0 then
    redis.pcall('SREM', prefix .. 'lines', job_type)
    redis.call('DEL', prefix .. 'wake:' .. job_type)
  end
end
