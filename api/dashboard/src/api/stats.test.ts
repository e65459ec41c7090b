import { expect, it } from "vitest";

import { summarize, type Statistics } from "./stats";

const at = (minute: number) => new Date(Date.UTC(2026, 0, 1, 0, minute)).toISOString();
const one = (counts: Record<string, number>[], more = {}): Statistics =>
  ({ counts: {}, wait_ms: null, run_ms: null, series: counts.map((its, i) => ({ at: at(i), minutes: 1, counts: its })), ...more }) as unknown as Statistics;

it("queues are added up, and the minute that runs is left out of rates", () => {
  const a = one([{ enqueued: 10, succeeded: 4 }, { enqueued: 10, succeeded: 6 }, { enqueued: 1 }], { counts: { succeeded: 10, failed: 10 } });
  const b = one([{ enqueued: 2, failed: 2 }, {}, {}], { counts: { succeeded: 20 } });
  const its = summarize([a, b]);
  expect(its.series.in).toEqual([12, 10, 1]);
  expect(its.inRate).toBe(11);
  expect(its.outRate).toBe(6);
  expect(its.failRate).toBe(0.25);
});

it("nothing is known of nothing", () => {
  expect(summarize([])).toMatchObject({ inRate: 0, failRate: null, wait: null });
});

it("ten minutes in one count as ten", () => {
  const its = summarize([one([], { series: [{ at: at(0), minutes: 10, counts: { enqueued: 50 } }, { at: at(10), minutes: 1, counts: { enqueued: 5 } }] })]);
  expect(its.series.in).toEqual([5, 5]);
});
