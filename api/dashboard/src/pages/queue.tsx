import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useParams } from "react-router";

import { path, send } from "@/api/client";
import { listJobs } from "@/api/jobs";
import { useMay } from "@/api/may";
import { CALM_MS, useBulks, usePoll, useQueue, useStats, useWorkers } from "@/api/queries";
import { summarize } from "@/api/stats";
import type { Line, Queue, State } from "@/api/types";
import { useAct } from "@/lib/actions";
import { findings } from "@/lib/findings";
import { compact, count, duration, many } from "@/lib/format";
import { useTitle } from "@/lib/title";
import { to } from "@/lib/to";
import { Button, ButtonLink } from "@/ui/button";
import { Confirm } from "@/ui/confirm";
import { Ago, Empty, Notice, Panel, Skeleton, Tag, Trouble } from "@/ui/parts";

import { Ageing } from "./ageing";
import { BulkDialog, BulkProgress, type Wanted } from "./bulk-dialog";
import { QueueTags, Tile } from "./overview";
import { PurgeDialog } from "./purge-dialog";
import { QueueSettings } from "./queue-settings";
import { Throughput } from "./throughput";
import { Percentiles } from "./type";

const SHOWN: readonly State[] = ["queued", "running", "retrying", "scheduled", "blocked", "failed", "succeeded", "cancelled"];

export function QueuePage() {
  const { name = "" } = useParams();
  useTitle(`Queue ${name}`);
  const queue = useQueue(name);
  const workers = useWorkers();
  if (!queue.data) return queue.error ? <Trouble error={queue.error} again={() => void queue.refetch()} /> : <Panel><Skeleton lines={8} /></Panel>;
  const its = queue.data;
  const found = workers.data ? findings({ queues: [its], workers: workers.data }) : [];
  const serving = (workers.data ?? []).filter((worker) => worker.queues.includes(name));
  return (
    <>
      <div className="page-head">
        <span className="crumb">Queue</span>
        <h1 className="break">{its.name}</h1>
        <QueueTags queue={its} />
        <Actions queue={its} />
      </div>
      {queue.error ? <Trouble error={queue.error} /> : null}
      {found.map((finding) => (
        <Notice key={finding.title + finding.detail} tone={finding.tone} title={finding.title}>{finding.detail}</Notice>
      ))}
      <div className="tiles compact">
        {SHOWN.filter((state) => state !== "blocked" || (its.counts.blocked ?? 0) > 0).map((state) => (
          <Tile key={state} name={state[0]!.toUpperCase() + state.slice(1)} state={state} where={to.jobs({ queue: name, state })}
            value={compact(its.counts[state] ?? 0)} title={count(its.counts[state] ?? 0)}
            tone={state === "failed" && (its.counts.failed ?? 0) > 0 ? "t-bad" : ""} />
        ))}
      </div>
      <div className="grid two">
        <div className="stack">
          <Lines queue={its} />
          <Next queue={its} />
          <Past name={name} />
        </div>
        <div className="stack">
          <QueueSettings queue={its} />
          <BulkActions queue={name} />
          <Panel title="Workers of this queue" note={count(serving.length)}>
            {serving.length === 0 ? (
              <p className="muted">None. Start one with <code className="break">taskq worker -A yourapp.jobs:app -q {name}</code></p>
            ) : (
              <ul className="plain-list">
                {serving.slice(0, 8).map((worker) => (
                  <li key={worker.id} className="row apart">
                    <Link to={to.workers} className="link clip mono">{worker.id}</Link>
                    <span className="muted num nowrap">{worker.busy} of {worker.slots} busy</span>
                  </li>
                ))}
                {serving.length > 8 ? <li><Link to={to.workers} className="link">all {serving.length}</Link></li> : null}
              </ul>
            )}
          </Panel>
        </div>
      </div>
    </>
  );
}

function Actions({ queue }: { queue: Queue }) {
  const { act, attempt, busy } = useAct();
  const [asking, setAsking] = useState(false);
  const [purging, setPurging] = useState(false);
  const [bulk, setBulk] = useState<Wanted | null>(null);
  const failed = queue.counts.failed ?? 0;
  const patch = (changes: object) => send("PATCH", path`/queues/${queue.name}`, changes);
  const n = queue.counts.queued ?? 0;
  const its = <ButtonLink to={to.jobs({ queue: queue.name })} icon="jobs">Its jobs</ButtonLink>;
  if (!useMay()("operate")) return <div className="actions">{its}</div>;
  return (
    <div className="actions">
      {its}
      {queue.paused ? (
        <Button look="primary" icon="play" busy={busy} onClick={() => void act(() => patch({ paused: false }), `${queue.name} goes on`)}>Resume</Button>
      ) : (
        <Button icon="pause" busy={busy} onClick={() => setAsking(true)}>Pause</Button>
      )}
      {failed > 0 ? <Button icon="retry" onClick={() => setBulk({ action: "retry", filter: { queue: queue.name, state: "failed" } })}>Retry failed</Button> : null}
      <Button look="danger" icon="trash" onClick={() => setPurging(true)}>Purge</Button>
      {purging ? <PurgeDialog queue={queue} onClose={() => setPurging(false)} /> : null}
      <BulkDialog wanted={bulk} onClose={() => setBulk(null)} />
      <Confirm
        open={asking} onClose={() => setAsking(false)} title={`Pause ${queue.name}?`} action="Pause the queue"
        run={() => attempt(() => patch({ paused: true }), `${queue.name} is paused`)}
      >
        <p>
          No job of it is handed out until it is resumed. What runs goes on to its end; new jobs are taken and wait.
          {n > 0 ? ` ${many(n, "job waits", "jobs wait")} now.` : ""}
        </p>
      </Confirm>
    </div>
  );
}

function Lines({ queue }: { queue: Queue }) {
  const { act, busy } = useAct();
  const operate = useMay()("operate");
  const paused = (type: string) => queue.paused_types.includes(type);
  const setPaused = (type: string, on: boolean) => {
    const types = queue.paused_types.filter((its) => its !== type);
    return act(
      () => send("PATCH", path`/queues/${queue.name}`, { paused_types: on ? [...types, type] : types }),
      on ? `${type} is paused` : `${type} goes on`,
    );
  };
  const silent: Line[] = queue.paused_types
    .filter((type) => !queue.types.some((line) => line.job_type === type))
    .map((job_type) => ({ job_type, waiting: 0, head_since: null, head_age: null, served: true }));
  const lines = [...queue.types, ...silent].sort((a, b) => b.waiting - a.waiting);
  return (
    <Panel title="Waiting lines" note="one for each job type" bare>
      {lines.length === 0 ? (
        <Empty title="Nothing waits here" small><p>A new job runs as soon as a worker has a free slot.</p></Empty>
      ) : (
        <div className="table-box">
          <table className="table">
            <thead><tr><th>Job type</th><th className="right">Waiting</th><th className="right">Longest wait</th><th>Why</th><th><span className="hidden-text">Actions</span></th></tr></thead>
            <tbody>
              {lines.map((line) => (
                <tr key={line.job_type}>
                  <td><Link to={to.jobs({ queue: queue.name, state: "queued", job_type: line.job_type })} className="name break">{line.job_type}</Link></td>
                  <td className="right">{count(line.waiting)}</td>
                  <td className="right nowrap">{line.head_age === null ? "–" : duration(line.head_age * 1000)}</td>
                  <td><WhyLine queue={queue} line={line} paused={paused(line.job_type)} /></td>
                  <td className="right">
                    {operate ? (
                      <Button small look="quiet" disabled={busy} icon={paused(line.job_type) ? "play" : "pause"}
                        onClick={() => void setPaused(line.job_type, !paused(line.job_type))}>
                        {paused(line.job_type) ? "Resume" : "Pause"}
                      </Button>
                    ) : null}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

function WhyLine({ queue, line, paused }: { queue: Queue; line: Line; paused: boolean }) {
  if (queue.paused) return <Tag tone="warn" icon="pause">queue paused</Tag>;
  if (paused) return <Tag tone="warn" icon="pause">type paused</Tag>;
  if (!line.served) return <Tag tone="bad" icon="warn">no worker runs it</Tag>;
  return <span className="muted">for its turn</span>;
}

const NEXT = 10;

function Next({ queue }: { queue: Queue }) {
  const next = useQuery({
    queryKey: ["jobs", "next", queue.name],
    queryFn: ({ signal }) => listJobs({ queue: queue.name, state: "queued" }, NEXT, null, signal),
    ...usePoll(CALM_MS),
  });
  const jobs = next.data?.jobs ?? [];
  if (jobs.length === 0) return null;
  return (
    <Panel title="What runs next, and why" note={queue.settings.aging_ms === 0 ? "first come, first served" : "waiting earns priority"}>
      <Ageing jobs={jobs} agingMs={queue.settings.aging_ms ?? 10_000} />
    </Panel>
  );
}

const PAST_MINUTES = 120;

function Past({ name }: { name: string }) {
  const stats = useStats(PAST_MINUTES, name);
  const its = stats.data ? summarize(stats.data) : null;
  return (
    <>
      <Throughput stats={stats.data} minutes={PAST_MINUTES} />
      {its && its.wait !== null ? (
        <Panel title="How long jobs waited and ran" note="last 2 hours">
          <dl className="facts">
            <dt>Waited</dt><dd><Percentiles of={its.wait} /></dd>
            <dt>Ran</dt><dd><Percentiles of={its.run} /></dd>
            {(stats.data?.[0]?.types ?? []).map((type) => (
              <div className="facts-row" key={type.job_type}><dt className="clip">{type.job_type}</dt><dd><Percentiles of={type.run_ms} /></dd></div>
            ))}
          </dl>
        </Panel>
      ) : null}
    </>
  );
}

const BULKS_SHOWN = 5;

function BulkActions({ queue }: { queue: string }) {
  const bulks = useBulks(queue);
  const { act } = useAct();
  const operate = useMay()("operate");
  if (!bulks.data || bulks.data.length === 0) return null;
  return (
    <Panel title="Bulk actions">
      <ul className="stack">
        {bulks.data.slice(0, BULKS_SHOWN).map((bulk) => (
          <li key={bulk.id} className="stack tight bulk">
            <div className="row apart">
              <span><strong>{bulk.action}</strong> <span className="faint">{bulk.state}, <Ago at={bulk.finished_at ?? bulk.started_at} /></span></span>
              {operate && bulk.state === "running" ? (
                <Button small look="danger" icon="stop" onClick={() => void act(() => send("POST", path`/bulk/${bulk.id}/stop`), "It is stopped")}>Stop</Button>
              ) : null}
            </div>
            <BulkProgress bulk={bulk} />
          </li>
        ))}
      </ul>
    </Panel>
  );
}
