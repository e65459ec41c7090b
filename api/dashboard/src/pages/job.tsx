import type { ReactNode } from "react";
import { Link, useParams, useSearchParams } from "react-router";

import { ApiError } from "@/api/client";
import { useJob, usePosition } from "@/api/queries";
import { isOver, WAITING, type Job, type Position } from "@/api/types";
import { count, many, short } from "@/lib/format";
import { useNow } from "@/lib/now";
import { useTitle } from "@/lib/title";
import { to } from "@/lib/to";
import { why } from "@/lib/why";
import { ButtonLink } from "@/ui/button";
import { StateBadge, type IconName } from "@/ui/icons";
import { Ago, CopyButton, Empty, Meter, Notice, Panel, Skeleton, Trouble } from "@/ui/parts";

import { JobActions } from "./job-actions";
import { JobData } from "./job-data";
import { JobFacts } from "./job-facts";
import { StateDiagram } from "./state-diagram";
import { Timeline } from "./timeline";

export function JobPage() {
  const { id = "" } = useParams();
  const job = useJob(id);
  useTitle(job.data ? `${job.data.job_type} ${job.data.state}` : "Job");
  if (!job.data) {
    if (job.error instanceof ApiError && job.error.status === 404) return <Gone id={id} />;
    return job.error ? <Trouble error={job.error} again={() => void job.refetch()} /> : <Panel><Skeleton lines={10} /></Panel>;
  }
  return <Shown job={job.data} error={job.error} />;
}

function Gone({ id }: { id: string }) {
  return (
    <Empty icon="jobs" title="There is no such job">
      <p className="break"><code>{id}</code> was never stored, or it ended and is no longer kept.</p>
      <ButtonLink to={to.jobs()}>All jobs</ButtonLink>
    </Empty>
  );
}

function Shown({ job, error }: { job: Job; error: unknown }) {
  const [params, setParams] = useSearchParams();
  const tab = params.get("tab") ?? "";
  const choose = (next: string) => setParams(next === "" ? {} : { tab: next }, { replace: true });
  return (
    <>
      <div className="page-head">
        <StateBadge state={job.state} pill />
        <h1 className="break">{job.job_type}</h1>
        <div className="actions"><JobActions job={job} /></div>
      </div>
      <div className="row job-id">
        <Link to={to.queue(job.queue)} className="link">{job.queue}</Link>
        <code className="faint break">{job.id}</code>
        <CopyButton text={job.id} label="Copy the id" />
      </div>
      {error ? <Trouble error={error} /> : null}
      <WhyHere job={job} />
      {job.state === "running" || job.progress ? <Progress job={job} /> : null}
      <div className="grid two">
        <div className="stack">
          <JobData job={job} tab={tab} onTab={choose} />
          <Panel title="Its way"><StateDiagram job={job} /></Panel>
        </div>
        <div className="stack">
          <JobFacts job={job} />
          <Panel title="Timeline"><Timeline job={job} /></Panel>
        </div>
      </div>
    </>
  );
}

function WhyHere({ job }: { job: Job }) {
  const now = useNow();
  const waits = WAITING.includes(job.state);
  const position = usePosition(job.id, waits);
  const its = why(job, position.data, now);
  if (its === null) return null;
  return (
    <Notice tone={its.tone} title={<span className="break">{its.title}</span>} icon={waits ? (job.state as IconName) : undefined}>
      {its.detail}{" "}
      {its.link ? <Link to={its.link.where} className="link nowrap">{its.link.name}</Link> : null}
      {waits && position.data ? <Place position={position.data} /> : null}
    </Notice>
  );
}

/** Where a waiting job stands, in numbers. */
function Place({ position }: { position: Position }) {
  const parts: ReactNode[] = [];
  if (position.rank !== null) parts.push(<span key="rank">place <strong className="num">{count(position.rank)}</strong>{position.ahead !== null ? `, ${count(position.ahead)} before it that can run` : ""}</span>);
  if (position.effective_priority !== null) {
    const earned = position.effective_priority - position.priority;
    parts.push(<span key="priority">priority <strong className="num">{short(position.effective_priority)}</strong>{Math.abs(earned) >= 0.01 ? `, ${short(earned)} of it earned by waiting` : ""}</span>);
  }
  parts.push(<span key="start">starts {position.estimated_start ? <strong><Ago at={position.estimated_start} /></strong> : ""} <span className="faint">({position.estimate})</span></span>);
  parts.push(<span key="workers">{many(position.workers, "worker")}, {many(position.free_slots, "free slot")}</span>);
  return <p className="place">{parts}</p>;
}

function Progress({ job }: { job: Job }) {
  if (!job.progress) return null;
  const share = typeof job.progress.fraction === "number" ? job.progress.fraction : 0;
  if (isOver(job.state) && share >= 1) return null;
  return (
    <div className="progress">
      <Meter share={share} label="Progress" state={job.state} />
      <span className="num">{Math.round(share * 100)} %</span>
      <span className="muted clip">{String(job.progress.message ?? "")}</span>
    </div>
  );
}
