/** Why a job is where it is, in words, with what can be done about it. */
import type { Job, Position } from "@/api/types";

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

/** `position` is what the API says about a waiting job, once it has. */
export function why(job: Job, position: Position | undefined, now: number): Why | null {
  switch (job.state) {
    case "queued":
      return whyQueued(job, position);
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
      return { tone: "bad", title: failedTitle(job), detail: failedDetail(job), link: kindLink(job) };
    case "cancelled":
      return { tone: "plain", title: "It was cancelled", detail: job.reason && job.reason !== "cancelled" ? `Reason: ${job.reason}` : "Somebody asked for it." };
    default:
      return null;
  }
}

const STUCK: Record<string, (job: Job) => Omit<Why, "detail">> = {
  paused: (job) => ({ tone: "warn", title: `Its queue ${job.queue} is paused`, link: queueLink(job, "Resume it there") }),
  paused_type: (job) => ({ tone: "warn", title: `${job.job_type} is paused in ${job.queue}`, link: queueLink(job, "Resume it there") }),
  no_worker: (job) => ({ tone: "bad", title: `No worker runs ${job.job_type} in ${job.queue}`, link: { where: to.workers, name: "Look at the workers" } }),
  workers_busy: (job) => ({ tone: "plain", title: "It waits for its turn: all workers are busy", link: queueLink(job, `Look at ${job.queue}`) }),
  next: () => ({ tone: "good", title: "It is next" }),
  blocked: () => ({ tone: "plain", title: "It waits for other jobs" }),
  misplaced: () => ({ tone: "bad", title: "It does not stand where its state says", link: { where: to.server, name: "Ask the doctor" } }),
};

const queueLink = (job: Job, name: string) => ({ where: to.queue(job.queue), name });

function whyQueued(job: Job, position: Position | undefined): Why {
  const reason = position?.reasons[0];
  const known = reason === undefined ? undefined : STUCK[reason.code];
  const detail = (position?.reasons ?? []).map((its) => sentence(its.message)).join(" ");
  if (known !== undefined) return { ...known(job), detail };
  return { tone: "plain", title: "It waits for its turn", detail, link: queueLink(job, `Look at ${job.queue}`) };
}

/** A message of the API as a sentence. */
const sentence = (text: string): string => (text === "" ? "" : `${text[0]!.toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`);

function lastFailure(job: Job): string {
  const error = job.error;
  return error === null ? "its last error is below." : `the last one with ${error.type ?? "an error"}: ${error.message ?? ""}`;
}

const kindLink = (job: Job) =>
  job.fingerprint ? { where: to.error(job.fingerprint, job.queue), name: "All that failed so" } : undefined;

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
