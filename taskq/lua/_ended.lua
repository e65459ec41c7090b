-- The states that end a job, as a list and to ask.
local ENDED = { 'succeeded', 'failed', 'cancelled' }
local ends = { succeeded = true, failed = true, cancelled = true }
-- How and when a job ended that has left only its stub; nil where there is none.
local function stub_of(id)
  for i = 1, 3 do
    local finished = redis.pcall('ZSCORE', prefix .. 'stubs:' .. ENDED[i], id)
    if type(finished) == 'string' then return ENDED[i], finished end
  end
end
