/** What an operator should look at, worst first, each with the page where it is understood and put right. */
import type { Queue, Ready, Worker } from "@/api/types";

import { count, duration, many } from "./format";
import { to } from "./to";

export interface Finding {
  tone: "bad" | "warn";
  title: string;
  detail: string;
  where: string;
}

export interface Look {
  ready?: Ready | { status: "not_ready"; reasons: string[] };
  queues: readonly Queue[];
  workers: readonly Worker[];
}

/** A head of a line that waits longer than this is worth a look (seconds). */
export const LONG_WAIT = 300;

export const waiting = (queue: Queue): number => queue.counts.queued ?? 0;

export function findings({ ready, queues, workers }: Look): Finding[] {
  const out: Finding[] = [];
  if (ready?.status === "not_ready") {
    out.push({ tone: "bad", title: "Jobs cannot be taken now", detail: ready.reasons.join("; "), where: to.server });
  }
  const stuck = queues.filter((queue) => waiting(queue) > 0);
  if (workers.length === 0 && stuck.length > 0) {
    const all = stuck.reduce((sum, queue) => sum + waiting(queue), 0);
    out.push({
      tone: "bad", title: "No worker is running",
      detail: `${many(all, "job waits", "jobs wait")}. Start one with \`taskq worker\`.`, where: to.workers,
    });
  }
  for (const queue of queues) out.push(...ofQueue(queue, workers.length > 0));
  for (const warning of (ready && "warnings" in ready && ready.warnings) || []) {
    out.push({ tone: "warn", title: "A setting of Redis is worth a look", detail: warning, where: to.server });
  }
  return out.sort((a, b) => Number(a.tone === "warn") - Number(b.tone === "warn"));
}

function ofQueue(queue: Queue, anyWorker: boolean): Finding[] {
  const out: Finding[] = [];
  const where = to.queue(queue.name);
  const n = waiting(queue);
  if (queue.paused) {
    const wait = n > 0 ? `${many(n, "job waits", "jobs wait")} until it is resumed` : "Nothing waits in it";
    out.push({ tone: "warn", title: `Queue ${queue.name} is paused`, detail: wait, where });
  }
  // Why a paused queue waits is said already.
  for (const line of queue.paused ? [] : queue.types) {
    const paused = queue.paused_types.includes(line.job_type);
    if (paused) {
      out.push({
        tone: "warn", title: `${line.job_type} is paused in ${queue.name}`,
        detail: `${many(line.waiting, "job waits", "jobs wait")} until the type is resumed`, where,
      });
    } else if (!line.served && anyWorker) {
      const age = line.head_age === null ? "" : `, the first for ${duration(line.head_age * 1000)}`;
      out.push({
        tone: "bad", title: `No worker runs ${line.job_type}`,
        detail: `${many(line.waiting, "job waits", "jobs wait")} in ${queue.name}${age}`, where,
      });
    }
  }
  const served = queue.types.filter((line) => line.served && !queue.paused_types.includes(line.job_type));
  const oldest = Math.max(0, ...served.map((line) => line.head_age ?? 0));
  if (!queue.paused && anyWorker && oldest > LONG_WAIT) {
    out.push({
      tone: "warn", title: `Queue ${queue.name} falls behind`,
      detail: `${count(n)} waiting, the longest for ${duration(oldest * 1000)}`, where,
    });
  }
  if (queue.quarantined > 0) {
    out.push({
      tone: "warn", title: `Broken items in ${queue.name}`,
      detail: `${many(queue.quarantined, "item was", "items were")} set aside; \`taskq doctor\` shows them`, where: to.server,
    });
  }
  return out;
}

/** The health of everything in one sentence, when there is nothing to look at. */
export function allIsWell({ queues, workers }: Look): string {
  const all = queues.reduce((sum, queue) => sum + waiting(queue), 0);
  const oldest = Math.max(0, ...queues.map((queue) => queue.head_age ?? 0));
  const who = many(workers.length, "worker");
  if (all === 0) return `Nothing waits. ${who} ${workers.length === 1 ? "is" : "are"} ready.`;
  return `${many(all, "job waits", "jobs wait")}, none longer than ${duration(Math.max(1000, oldest * 1000))}. ${who} at work.`;
}
