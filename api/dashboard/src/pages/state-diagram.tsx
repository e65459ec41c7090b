import { useEffect, useRef } from "react";

import type { Job, State } from "@/api/types";

interface Node {
  state: State;
  x: number;
  y: number;
}

const WIDTH = 118;
const HEIGHT = 34;
const NODES: readonly Node[] = [
  { state: "scheduled", x: 6, y: 20 },
  { state: "queued", x: 6, y: 84 },
  { state: "running", x: 196, y: 84 },
  { state: "retrying", x: 196, y: 148 },
  { state: "succeeded", x: 392, y: 20 },
  { state: "failed", x: 392, y: 84 },
  { state: "cancelled", x: 392, y: 148 },
];

/** Which states a job has been in, as far as is known. */
export function visited(job: Job): ReadonlySet<State> {
  const seen = new Set<State>([job.state]);
  const events = new Set(job.history.map((event) => event.event));
  if (job.attempts > 0) seen.add("queued").add("running");
  if (job.failures > 0 && job.attempts > 1) seen.add("retrying");
  if (job.history.some((event) => event.event === "failed" && event.retry_in_ms != null)) seen.add("retrying");
  const late = job.created_at && job.eligible_at && Date.parse(job.eligible_at) - Date.parse(job.created_at) > 50;
  if (events.has("snoozed") || (late && job.failures === 0 && events.has("due"))) seen.add("scheduled");
  if (job.state !== "scheduled" && job.state !== "blocked" && !seen.has("scheduled")) seen.add("queued");
  return seen;
}

const PATHS: readonly (readonly [State, State, string])[] = [
  ["scheduled", "queued", "M65 54V84"],
  ["queued", "running", "M124 101H196"],
  ["running", "succeeded", "M314 94C352 94 352 37 392 37"],
  ["running", "failed", "M314 101H392"],
  ["running", "cancelled", "M314 108C352 108 352 165 392 165"],
  ["running", "retrying", "M255 118V148"],
  ["retrying", "queued", "M196 165C100 165 65 160 65 118"],
];

/** The states of any job, with the way that this one took. */
export function StateDiagram({ job }: { job: Job }) {
  const seen = visited(job);
  const shown = job.state === "blocked" ? [{ state: "blocked" as const, x: 6, y: 148 }, ...NODES] : NODES;
  const words = [...seen].join(", ");
  const box = useRef<HTMLDivElement>(null);
  const far = (NODES.find((node) => node.state === job.state)?.x ?? 0) > WIDTH * 2;
  useEffect(() => {
    // On a narrow screen the state that it is in has to be seen first.
    if (box.current && far) box.current.scrollLeft = box.current.scrollWidth;
  }, [far]);
  return (
    <div className="diagram" ref={box}>
      <svg viewBox="0 0 516 202" role="img" aria-label={`The job is ${job.state}. It has been: ${words}.`}>
        <defs>
          {["on", "off"].map((name) => (
            <marker key={name} id={`arrow-${name}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
              <path d="m1 1 6 3-6 3" fill="none" className={`arrow ${name}`} />
            </marker>
          ))}
        </defs>
        {PATHS.map(([from, into, d]) => {
          const on = seen.has(from) && seen.has(into) && !(from === "running" && into !== "retrying" && into !== job.state);
          return <path key={from + into} d={d} className={`way ${on ? "on" : ""}`} markerEnd={`url(#arrow-${on ? "on" : "off"})`} />;
        })}
        {shown.map(({ state, x, y }) => (
          <g key={state} className={`node s-${state} ${state === job.state ? "here" : seen.has(state) ? "seen" : ""}`} transform={`translate(${x} ${y})`}>
            <rect width={WIDTH} height={HEIGHT} rx="8" />
            <text x={WIDTH / 2} y={HEIGHT / 2} dominantBaseline="central" textAnchor="middle">{label(state, job)}</text>
          </g>
        ))}
      </svg>
    </div>
  );
}

function label(state: State, job: Job): string {
  if (state === "running" && job.attempts > 1) return `running ×${job.attempts}`;
  if (state === "retrying" && job.failures > 1) return `retrying ×${job.state === "failed" ? job.failures - 1 : job.failures}`;
  return state;
}
