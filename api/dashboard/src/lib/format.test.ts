import { expect, it } from "vitest";

import { brief, bytes, clock, compact, duration, many, percent, relative, short } from "./format";

it.each([
  [0, "0 s"], [0.4, "<1 ms"], [740, "740 ms"], [4200, "4.2 s"], [42_400, "42 s"], [59_600, "1 min"],
  [192_000, "3 min 12 s"], [7_500_000, "2 h 5 min"], [90_000_000, "1 d 1 h"], [-5, "0 s"],
])("a duration of %d ms is %s", (ms, text) => expect(duration(ms)).toBe(text));

it.each([[9999, "9,999"], [12_345, "12.3k"], [1_000_000, "1M"], [204_331_000, "204M"]])(
  "%d is %s", (value, text) => expect(compact(value)).toBe(text));

it.each([[12_000, "12 s"], [95_000, "1 min 35 s"], [2_060_000, "34 min"], [7_560_000, "2.1 h"], [200_000_000, "2.3 d"]])(
  "briefly %d ms is %s", (ms, text) => expect(brief(ms)).toBe(text));

it("rates and shares say something", () => {
  expect([0, 0.001, 1.234, 12.34, 1234].map(short)).toEqual(["0", "<0.01", "1.23", "12.3", "1,234"]);
  expect([0, 0.0004, 0.031, 0.5, 1].map(percent)).toEqual(["0 %", "<0.1 %", "3.1 %", "50 %", "100 %"]);
  expect([900, 1500, 2_000_000].map(bytes)).toEqual(["900 B", "1.5 kB", "2 MB"]);
  expect([many(1, "job"), many(1200, "job")]).toEqual(["1 job", "1,200 jobs"]);
});

it("times are told in a zone", () => {
  const at = new Date("2026-11-29T19:01:01.740Z");
  expect(clock(at, "utc", at)).toBe("19:01:01");
  expect(clock(at, "utc", at, true)).toBe("19:01:01.740");
  expect(clock(at, "utc", new Date("2026-12-01T00:00:00Z"))).toBe("29 Nov, 19:01:01");
  expect(clock(at, "utc", new Date("2027-12-01T00:00:00Z"))).toBe("29 Nov 2026, 19:01:01");
  expect(relative(1000, 5900)).toBe("4 s ago");
  expect(relative(65_000, 1000)).toBe("in 1 min 4 s");
  expect(relative(1000, 1500)).toBe("now");
});
