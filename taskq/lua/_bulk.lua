-- Variadic writes in chunks, since unpack() fails near 8,000 values.
local function bulk(command, key, values)
  for from = 1, #values, 2000 do
    redis.call(command, key, unpack(values, from, math.min(from + 1999, #values)))
  end
end
local function readable_zset(name) return type(redis.pcall('ZCARD', prefix .. name)) == 'number' end
