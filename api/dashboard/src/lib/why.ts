/** Why a job is where it is, in words, with what can be done about it. */
import type { Job, Queue } from "@/api/types";

import { count, duration, many, relative } from "./format";
import { to } from "./to";

export interface Why {
  tone: "good" | "warn" | "bad" | "plain" | "accent";
  title: string;
  detail: string;
  /** Where it is put right. */
  link?: { where: string; name: string };
}

const ms = (at: string | null): number => (at === null ? Number.NaN : Date.parse(at));

/** `queue` is the job's own, where it could be looked at. */
export function why(job: Job, queue: Queue | undefined, now: number): Why | null {
  switch (job.state) {
    case "queued":
      return whyQueued(job, queue);
    case "scheduled":
      return { tone: "plain", title: `It is due ${relative(ms(job.eligible_at), now)}`, detail: "It was submitted for later, or put off by its own run. It goes in line when it is due." };
    case "retrying":
      return {
        tone: "warn", title: `It failed and tries again ${relative(ms(job.eligible_at), now)}`,
        detail: `${many(job.failures, "run has", "runs have")} failed so far${job.max_attempts ? ` of ${job.max_attempts}` : ""}; ${lastFailure(job)}`,
      };
    case "running":
      return job.cancel_requested
        ? { tone: "warn", title: "It was asked to stop", detail: "Its worker tells it within seconds. What does not look for that goes on to its end, or to its timeout." }
        : null;
    case "blocked":
      return { tone: "plain", title: "It waits for other jobs", detail: "It goes in line once they have ended." };
    case "failed":
      return { tone: "bad", title: failedTitle(job), detail: failedDetail(job) };
    case "cancelled":
      return { tone: "plain", title: "It was cancelled", detail: job.reason && job.reason !== "cancelled" ? `Reason: ${job.reason}` : "Somebody asked for it." };
    default:
      return null;
  }
}

function whyQueued(job: Job, queue: Queue | undefined): Why {
  const link = { where: to.queue(job.queue), name: `Look at ${job.queue}` };
  if (queue === undefined) return { tone: "plain", title: "It waits for its turn", detail: "", link };
  if (queue.paused) return { tone: "warn", title: `Its queue ${job.queue} is paused`, detail: "It runs once the queue is resumed.", link };
  if (queue.paused_types.includes(job.job_type)) {
    return { tone: "warn", title: `${job.job_type} is paused in ${job.queue}`, detail: "It runs once the type is resumed.", link };
  }
  const line = queue.types.find((its) => its.job_type === job.job_type);
  if (line !== undefined && !line.served) {
    return {
      tone: "bad", title: `No worker runs ${job.job_type}`,
      detail: queue.workers === 0
        ? `No worker serves the queue ${job.queue}. Start one with \`taskq worker -q ${job.queue}\` and an application that has this task.`
        : `${many(queue.workers, "worker serves", "workers serve")} the queue, but none has this task: is its release deployed?`,
      link: { where: to.workers, name: "Look at the workers" },
    };
  }
  const before = queue.counts.queued ?? 0;
  return {
    tone: "plain", title: "It waits for its turn",
    detail: `${many(before, "job waits", "jobs wait")} in ${job.queue}; waiting earns priority, so nobody is overtaken for ever.`, link,
  };
}

function lastFailure(job: Job): string {
  const error = job.error;
  return error === null ? "its last error is below." : `the last one with ${error.type ?? "an error"}: ${error.message ?? ""}`;
}

const REASONS: Record<string, string> = {
  expired: "It expired before it could start",
  crashed: "Its process died again and again",
  crashes: "Its process died again and again",
  lost: "Its worker was lost again and again",
  timeout: "It ran out of time",
};

function failedTitle(job: Job): string {
  if (job.error?.type) return `${job.error.type}${job.error.message ? `: ${job.error.message}` : ""}`;
  return REASONS[job.reason ?? ""] ?? (job.reason ? `It failed: ${job.reason}` : "It failed");
}

function failedDetail(job: Job): string {
  const parts = [`It ran ${job.attempts === 1 ? "once" : `${count(job.attempts)} times`}`];
  if (job.reason && job.error?.type) parts.push(REASONS[job.reason]?.toLowerCase() ?? job.reason);
  const lasted = ms(job.finished_at) - ms(job.started_at);
  if (Number.isFinite(lasted)) parts.push(`its last run took ${duration(lasted)}`);
  return `${parts.join("; ")}. The traceback is below; retry it once the cause is gone.`;
}
