-- The types that wait, by name: no walk over them is longer than 2,000, twice what enqueue lets into line.
local MOST_TYPES = 2000
local function waiting_types()
  local page = redis.pcall('SSCAN', prefix .. 'lines', 0, 'COUNT', MOST_TYPES)
  local types = page.err and {} or page[2]
  for i = #types, MOST_TYPES + 1, -1 do types[i] = nil end
  table.sort(types)
  return types
end
