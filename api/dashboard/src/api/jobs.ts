/** Jobs over REST; payloads, results and errors stay text. */
import { objectText, parseAround } from "@/lib/raw";

import { ask, get, path } from "./client";
import type { Failure, Job, JobList, State } from "./types";

export interface JobFilter {
  queue?: string;
  state?: State;
  job_type?: string;
}

const TEXTS = ["payload", "result", "error"] as const;

/** What the API answers for one job. */
export function readJob(text: string): Job {
  const { value, raw } = parseAround<Job & { payload_raw?: string; result_raw?: string }>(text, TEXTS);
  const stored = (name: string, unreadable?: string) => {
    const its = raw.get(name);
    return its === undefined || its === "null" ? (unreadable ?? null) : its;
  };
  const errorText = stored("error");
  return {
    ...value,
    payload: stored("payload", value.payload_raw),
    result: stored("result", value.result_raw),
    hidden: !raw.has("payload"),
    error: errorText === null ? null : failure(errorText),
    errorText,
  };
}

/** The words of an error, each as text whatever it was. */
export function failure(text: string): Failure {
  const value: unknown = JSON.parse(text);
  const its = value !== null && typeof value === "object" ? (value as Record<string, unknown>) : { message: value };
  const word = (name: string) => {
    const found = its[name];
    if (found === undefined || found === null) return null;
    return typeof found === "string" ? found : JSON.stringify(found);
  };
  return { type: word("type"), message: word("message"), traceback: word("traceback") };
}

export async function fetchJob(id: string, signal?: AbortSignal): Promise<Job> {
  return readJob(await ask("GET", path`/jobs/${id}`, { signal }));
}

export function listJobs(
  filter: JobFilter, limit: number, cursor: string | null, signal?: AbortSignal,
): Promise<JobList> {
  return get<JobList>("/jobs", { ...filter, limit, cursor }, signal);
}

export async function cancelJob(id: string): Promise<Job> {
  return readJob(await ask("POST", path`/jobs/${id}/cancel`));
}

export async function retryJob(id: string): Promise<Job> {
  return readJob(await ask("POST", path`/jobs/${id}/retry`));
}

export async function deleteJob(id: string): Promise<void> {
  await ask("DELETE", path`/jobs/${id}`);
}

/** Changes a waiting job; one that has run since it was looked at is left alone. */
export async function editJob(job: Job, changes: { priority?: number; delay?: number; run_at?: string }): Promise<Job> {
  return readJob(await ask("PATCH", path`/jobs/${job.id}`, { body: JSON.stringify({ ...changes, fence: job.fence ?? 0 }) }));
}

/** Fields of a submission; the payload is JSON text and goes out as it is. */
export interface Submission {
  job_type: string;
  payload: string;
  queue?: string;
  priority?: number;
  delay?: number;
  max_attempts?: number;
  timeout?: number;
  unique_key?: string;
  keep_payload?: boolean;
}

export async function submitJob(job: Submission, idempotencyKey: string): Promise<Job> {
  const { payload, ...rest } = job;
  const members = Object.entries(rest).map(
    ([name, value]) => [name, value === undefined ? undefined : JSON.stringify(value)] as const,
  );
  const body = objectText([...members, ["payload", payload]]);
  return readJob(await ask("POST", "/jobs", { body, headers: { "Idempotency-Key": idempotencyKey } }));
}
