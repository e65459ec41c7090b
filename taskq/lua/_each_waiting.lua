-- The containers of waiting jobs, for scripts that walk them page by page.
local function waiting_containers(wanted)
  local out = {}
  if wanted.queued then
    local types = redis.pcall('SMEMBERS', prefix .. 'lines')
    table.sort(types)
    for i = 1, #types do out[#out + 1] = { state = 'queued', name = 'ready:' .. types[i], type = types[i] } end
  end
  for _, name in ipairs({ 'scheduled', 'retrying', 'blocked' }) do
    if wanted[name] then out[#out + 1] = { state = name, name = name } end
  end
  return out
end
