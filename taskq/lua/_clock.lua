-- The server's clock, read once a script, in ms on a grid of 1/2048 ms (exact in a double until 2109).
local function clock(override)
  if override ~= '' then return tonumber(override) end
  local t = redis.call('TIME')
  local us = tonumber(t[1]) * 1000000 + tonumber(t[2])
  return math.floor(us * 2.048) / 2048
end
local NOW = clock(now)
local NOW_MS = math.floor(NOW)
-- Numbers joined into text must not pass tostring(), which keeps 14 digits only.
local function int_text(number) return string.format('%.0f', number) end
local function exact(number) return string.format('%.17g', number) end
