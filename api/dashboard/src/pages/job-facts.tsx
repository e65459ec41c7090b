import type { ReactNode } from "react";
import { Link } from "react-router";

import { isOver, type Job } from "@/api/types";
import { duration } from "@/lib/format";
import { to } from "@/lib/to";
import { Ago, At, Lasted, Panel } from "@/ui/parts";

/** The numbers of a job; what is ordinary is left out. */
export function JobFacts({ job }: { job: Job }) {
  const waited = job.started_at && job.eligible_at ? Date.parse(job.started_at) - Date.parse(job.eligible_at) : null;
  const facts: [string, ReactNode][] = [
    ["Type", <Link to={to.type(job.job_type)} className="link">{job.job_type}</Link>],
    ["Queue", <Link to={to.queue(job.queue)} className="link">{job.queue}</Link>],
    ["Priority", job.priority],
    ["Created", <><At at={job.created_at} /> <span className="faint">(<Ago at={job.created_at} />)</span></>],
  ];
  if (job.state === "scheduled" || job.state === "retrying") facts.push(["Due", <><At at={job.eligible_at} /> <span className="faint">(<Ago at={job.eligible_at} />)</span></>]);
  if (waited !== null && waited >= 0) facts.push(["Waited", duration(waited)]);
  if (job.started_at) facts.push([isOver(job.state) ? "Last run took" : "Runs for", <Lasted from={job.started_at} to={isOver(job.state) ? job.finished_at : null} />]);
  facts.push(["Runs", `${job.attempts}${job.max_attempts ? `, failing at ${job.max_attempts}` : ""}`]);
  if (job.failures + job.crashes + job.lost > 0) facts.push(["Gone wrong", [[job.failures, "failed"], [job.crashes, "crashed"], [job.lost, "lost"]].filter(([n]) => n).map(([n, word]) => `${n} ${word}`).join(", ")]);
  if (job.worker) facts.push([job.state === "running" ? "Worker" : "Last worker", <Link to={to.workers} className="link mono">{job.worker}</Link>]);
  if (job.fence !== null) facts.push(["Fence", <span className="mono num" title="number of its last run; a report with another one is refused">{job.fence}</span>]);
  if (job.timeout !== null) facts.push(["Timeout", job.timeout === 0 ? "none" : duration(job.timeout * 1000)]);
  if (job.unique_key) facts.push(["Unique key", <code className="break">{job.unique_key}</code>]);
  if (job.expires_at) facts.push(["Expires", <At at={job.expires_at} />]);
  if (job.reason && job.reason !== job.state) facts.push(["Reason", job.reason]);
  if (job.stub) facts.push(["Kept", "only its state and times"]);
  return (
    <Panel title="Facts">
      <dl className="facts">
        {facts.map(([name, value]) => (
          <div key={name} className="facts-row"><dt>{name}</dt><dd>{value}</dd></div>
        ))}
      </dl>
    </Panel>
  );
}
