import { expect, it } from "vitest";

import { readJob } from "@/api/jobs";
import type { Job, Position } from "@/api/types";

import { why } from "./why";

const job = (more: Partial<Job>): Job =>
  ({ ...readJob(JSON.stringify({ id: "mail:1", queue: "mail", job_type: "send", attempts: 1, failures: 0, history: [], log: [], payload: {}, result: null, error: null })), ...more }) as Job;
const position = (code: string, message: string) => ({ reasons: [{ code, message, until: null }] }) as unknown as Position;

it("a waiting job says what keeps it and where that is put right", () => {
  const queued = job({ state: "queued" });
  expect(why(queued, position("paused", "queue mail is paused"), 0)).toMatchObject({ title: "Its queue mail is paused", detail: "Queue mail is paused.", link: { where: "/ui/queues/mail" } });
  expect(why(queued, position("no_worker", "start one"), 0)).toMatchObject({ tone: "bad", title: "No worker runs send in mail", link: { where: "/ui/workers" } });
  expect(why(queued, position("a_new_word", "something new"), 0)).toMatchObject({ title: "It waits for its turn", detail: "Something new." });
  expect(why(queued, undefined, 0)).toMatchObject({ title: "It waits for its turn" });
});

it("a failed job says what happened", () => {
  const failed = job({ state: "failed", attempts: 3, error: { type: "ValueError", message: "no", traceback: null } });
  expect(why(failed, undefined, 0)).toMatchObject({ tone: "bad", title: "ValueError: no" });
  expect(why(job({ state: "failed", reason: "expired" }), undefined, 0)?.title).toBe("It expired before it could start");
});

it("a job that goes its way needs no words", () => {
  expect(why(job({ state: "running", cancel_requested: false }), undefined, 0)).toBeNull();
  expect(why(job({ state: "succeeded" }), undefined, 0)).toBeNull();
});
