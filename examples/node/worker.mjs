#!/usr/bin/env node
//
// A whole taskq worker for Node 18 or newer, without dependencies: one function for each job type.
//
//   node worker.mjs [HANDLERS.mjs]
//
// Without an argument it serves the two handlers below; your own module exports them as `handlers`. Try it,
// beside `make run`:
//
//   node examples/node/worker.mjs
//   curl -X POST http://localhost:8000/jobs -H 'Content-Type: application/json' \
//        -d '{"job_type":"count_words","payload":{"text":"to be or not to be"}}'
//
// A handler gets the payload and a context, and answers the result. What it throws makes the job fail; it is
// retried as its `max_attempts` says, unless the error has `retry: false`. (JSON.parse rounds integers beyond
// 2^53: send such numbers as strings.) Settings, from the environment: TASKQ_URL (http://localhost:8000),
// TASKQ_API_KEY (none), TASKQ_QUEUE (default), TASKQ_WORKER (a name for lists of workers), CONCURRENCY (4),
// LEASE_SECONDS (30) and WAIT_SECONDS (20, the longest poll).
//
// SIGTERM or Ctrl-C stops the runs and hands their jobs back, which burns no attempt. If the process dies in any
// other way, its leases run out and other workers get the jobs: jobs run at least once.

import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { pathToFileURL } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";

const builtIn = {
  count_words: async ({ text }) => text.split(/\s+/).filter(Boolean).length,

  // Shows all that a context can do. `signal` is aborted when the run has to stop: pass it on.
  count_down: async ({ from = 3, seconds = 1 }, { signal, progress, log }) => {
    for (let left = from; left > 0; left--) {
      log(`${left} ...`);
      progress((from - left) / from, `${left} to go`);
      await sleep(seconds * 1000, undefined, { signal });
    }
    return { counted: from };
  },
};

const env = process.env;
const url = env.TASKQ_URL ?? "http://localhost:8000";
const queue = env.TASKQ_QUEUE ?? "default";
const leaseSeconds = Number(env.LEASE_SECONDS ?? 30);
const waitSeconds = Number(env.WAIT_SECONDS ?? 20);
const concurrency = Number(env.CONCURRENCY ?? 4);
const name = env.TASKQ_WORKER ?? `${hostname().replace(/[^\w.-]/g, "").slice(0, 60)}-${process.pid}`;
const headers = { "Content-Type": "application/json" };
if (env.TASKQ_API_KEY) headers.Authorization = `Bearer ${env.TASKQ_API_KEY}`;

const stop = new AbortController();
const leases = new Map(); // id -> its lease, with the runs that are under way

const say = (...words) => console.error(new Date().toTimeString().slice(0, 8), ...words);

/** Refused for good: `status` and `code` say why. */
class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `status ${status}`);
    Object.assign(this, { status, code: problem.code });
  }
}

/** One request. Throws Refused for a 4xx; anything else that it throws is worth another try. */
async function call(method, path, body, { seconds = 10, more = {}, signal } = {}) {
  const limits = [AbortSignal.timeout(seconds * 1000), ...(signal ? [signal] : [])];
  const answer = await fetch(url + path, {
    method,
    headers: { ...headers, ...more },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: anyOf(limits),
  });
  const text = await answer.text();
  if (answer.ok) return JSON.parse(text);
  if (answer.status === 429 || answer.status >= 500) throw new Error(`status ${answer.status}`);
  let problem = {};
  try { problem = JSON.parse(text); } catch { /* not from taskq: the status has to do */ }
  throw new Refused(answer.status, problem);
}

/** A signal that is aborted with the first of several (AbortSignal.any came with Node 20). */
function anyOf(signals) {
  const one = new AbortController();
  for (const signal of signals) {
    if (signal.aborted) one.abort(signal.reason);
    signal.addEventListener("abort", () => one.abort(signal.reason), { once: true, signal: one.signal });
  }
  return one.signal;
}

/** The same until it is not worth trying again, with growing pauses: an API that restarts is waited for. */
async function insist(method, path, body, tries = Infinity) {
  for (let n = 0; ; n++) {
    try {
      return await call(method, path, body);
    } catch (error) {
      if (error instanceof Refused || n + 1 >= tries) throw error;
      await sleep(Math.min(5000, 200 * 2 ** n) * (0.5 + Math.random() / 2));
    }
  }
}

// --- claiming -------------------------------------------------------------------------------------------

async function main(handlers) {
  const busy = () => [...leases.values()].reduce((sum, lease) => sum + lease.runs.size, 0);
  let key = randomUUID();
  say(`worker ${name}: ${Object.keys(handlers).join(", ")} of queue ${queue} at ${url}`);
  for (let failed = 0; !stop.signal.aborted; ) {
    if (busy() >= concurrency) {
      await Promise.race([...leases.values()].flatMap((lease) => [...lease.runs.values()].map((run) => run.over)));
      continue;
    }
    try {
      const wanted = {
        queue, job_types: Object.keys(handlers), max: concurrency - busy(), worker: name,
        lease_seconds: leaseSeconds, wait: waitSeconds,
      };
      // Hanging up at a stop is enough: nothing is taken for a client that is gone.
      const lease = await call("POST", "/leases", wanted, {
        seconds: waitSeconds + 10, more: { "Idempotency-Key": key }, signal: stop.signal,
      });
      if (lease.jobs.length > 0) start(lease, handlers);
      failed = 0;
      key = randomUUID();
    } catch (error) {
      if (stop.signal.aborted) break;
      say(`cannot claim: ${error.message}`);
      // The key stays the same until there is an answer (and `max` with it, as no run begins or ends an
      // answer): so the jobs of an answer that got lost are answered again. A run may have ended, though:
      // then it is another claim, and the lost one's jobs come back when their lease runs out.
      if (error instanceof Refused) key = randomUUID();
      await sleep(Math.min(5000, 200 * 2 ** failed++) * (0.5 + Math.random() / 2));
    }
  }
  await Promise.all([...leases.keys()].map(handBack));
  say(`worker ${name}: stopped`);
}

function start({ id, jobs }, handlers) {
  const lease = { id, runs: new Map() };
  leases.set(id, lease);
  for (const job of jobs) {
    const run = { job, stop: new AbortController(), seq: 0 };
    lease.runs.set(job.id, run);
    run.over = perform(lease, run, handlers[job.job_type]);
  }
  lease.beats = setInterval(() => beat(lease), (leaseSeconds * 1000) / 3);
}

// --- one run --------------------------------------------------------------------------------------------

async function perform(lease, run, handler) {
  const { job } = run;
  let told = Promise.resolve(); // one after the other: a line with a lower number than the last is passed over
  const tell = (news) => {
    const runs = [{ id: job.id, fence: job.fence, ...news }];
    told = told
      .then(() => call("POST", `/leases/${lease.id}/progress`, { runs }))
      .catch((error) => say(`job ${job.id}: cannot tell: ${error.message}`));
  };
  const context = {
    job,
    signal: run.stop.signal,
    progress: (fraction, message = "") => tell({ fraction, message }),
    log: (line) => tell({ log: [{ seq: ++run.seq, line: String(line) }] }),
  };
  say(`job ${job.id}: started`);
  let report;
  try {
    const result = await handler(job.payload, context);
    report = { outcome: "succeeded", result: result ?? null };
  } catch (error) {
    const { name: type = "Error", message = String(error), stack, retry } = error ?? {};
    report = { outcome: "failed", error: { type, message, traceback: stack }, retry: retry !== false };
  }
  // A result that came all the same counts, if the run is still ours.
  const why = run.stop.signal.reason;
  if (run.stop.signal.aborted && report.outcome !== "succeeded") {
    report = why === "cancelled" ? { outcome: "released" } : null;
  }
  await told; // what comes after the report is refused
  try {
    if (report !== null) {
      const results = [{ id: job.id, fence: job.fence, ...report }];
      const answer = await insist("POST", `/leases/${lease.id}/results`, { results });
      const { state, problem } = answer.results[0];
      say(`job ${job.id}: ${report.outcome}, now ${state}${problem ? ` (${problem.code})` : ""}`);
    } else {
      say(`job ${job.id}: stopped (${why})`);
    }
  } catch (error) {
    say(`job ${job.id}: cannot be reported: ${error.message}`);
  }
  lease.runs.delete(job.id);
  if (lease.runs.size === 0) forget(lease);
}

function forget(lease) {
  clearInterval(lease.beats);
  leases.delete(lease.id);
}

async function beat(lease) {
  const abort = (run, why) => run.stop.abort(why);
  try {
    const { held, cancel } = await call("POST", `/leases/${lease.id}/heartbeat`, undefined, {
      seconds: leaseSeconds / 3,
    });
    for (const run of lease.runs.values()) {
      if (cancel.includes(run.job.id)) abort(run, "cancelled");
      else if (!held.includes(run.job.id)) abort(run, "timed out, or another's by now");
    }
  } catch (error) {
    if (!(error instanceof Refused)) return say(`no heartbeat: ${error.message}`);
    for (const run of lease.runs.values()) abort(run, "the lease ran out");
  }
}

async function handBack(id) {
  const lease = leases.get(id);
  const runs = [...lease.runs.values()];
  for (const run of runs) run.stop.abort("handed back");
  // The next run must not begin beside this one: a handler gets two seconds to end.
  await Promise.race([Promise.all(runs.map((run) => run.over)), sleep(2000)]);
  clearInterval(lease.beats);
  try {
    await insist("DELETE", `/leases/${id}`, undefined, 4);
  } catch (error) {
    say(`lease ${id}: cannot be handed back: ${error.message}`);
  }
}

for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => stop.abort("stop"));
const own = process.argv[2] ? (await import(pathToFileURL(process.argv[2]))).handlers : builtIn;
await main(own);
process.exit(0);
