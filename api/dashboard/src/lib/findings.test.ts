import { expect, it } from "vitest";

import type { Queue, Worker } from "@/api/types";

import { allIsWell, findings } from "./findings";

const queue = (name: string, more: Partial<Queue> = {}): Queue => ({
  name, paused: false, paused_types: [], counts: { queued: 0 }, head_since: null, head_age: null,
  workers: 1, holders: 0, quarantined: 0, types: [], settings: {}, ...more,
} as Queue);
const line = (job_type: string, more = {}) => ({ job_type, waiting: 3, head_since: null, head_age: 1, served: true, ...more });
const workers = [{ id: "w" } as Worker];
const titles = (look: Parameters<typeof findings>[0]) => findings(look).map((finding) => finding.title);

it("nothing to look at is said in a sentence", () => {
  const look = { queues: [queue("a")], workers };
  expect(findings(look)).toEqual([]);
  expect(allIsWell(look)).toBe("Nothing waits. 1 worker is ready.");
  const busy = { queues: [queue("a", { counts: { queued: 1200 }, head_age: 4.2 })], workers };
  expect(allIsWell(busy)).toBe("1,200 jobs wait, none longer than 4.2 s. 1 worker at work.");
});

it("a type that nobody runs, a paused queue and a paused type are each told", () => {
  expect(titles({ queues: [queue("a", { counts: { queued: 3 }, types: [line("new", { served: false })] })], workers })).toEqual(["No worker runs new"]);
  expect(titles({ queues: [queue("a", { paused: true, types: [line("new", { served: false })] })], workers })).toEqual(["Queue a is paused"]);
  expect(titles({ queues: [queue("a", { paused_types: ["x"], types: [line("x")] })], workers })).toEqual(["x is paused in a"]);
});

it("without any worker that alone is told, and what is worst comes first", () => {
  const look = {
    ready: { status: "not_ready" as const, reasons: ["Redis is full"] },
    queues: [queue("a", { paused: true, counts: { queued: 2 } }), queue("b", { counts: { queued: 5 }, types: [line("x", { served: false })] })],
    workers: [],
  };
  expect(titles(look)).toEqual(["Jobs cannot be taken now", "No worker is running", "Queue a is paused"]);
});

it("a line that falls behind is told, but not while a queue is paused", () => {
  const behind = { counts: { queued: 9 }, types: [line("x", { head_age: 900 })], head_age: 900 };
  expect(titles({ queues: [queue("a", behind)], workers })).toEqual(["Queue a falls behind"]);
  expect(titles({ queues: [queue("a", { ...behind, paused: true })], workers })).toEqual(["Queue a is paused"]);
});
