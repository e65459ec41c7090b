import { lazy, Suspense } from "react";
import { Link } from "react-router";

import { useErrors, useQueues, useReady, useStats, useWorkers } from "@/api/queries";
import { summarize, type Statistics } from "@/api/stats";
import type { Queue, Worker } from "@/api/types";
import { allIsWell, findings, waiting, type Finding } from "@/lib/findings";
import { brief, compact, count, duration, percent, short } from "@/lib/format";
import { to } from "@/lib/to";
import { useTitle } from "@/lib/title";
import { Icon } from "@/ui/icons";
import { Panel, Skeleton, Tag, Trouble } from "@/ui/parts";
import { Spark } from "@/ui/spark";

import { ErrorTable } from "./error-table";
import { FirstJob } from "./first-job";

export function Overview() {
  useTitle("Overview");
  const queues = useQueues();
  const workers = useWorkers();
  const ready = useReady();
  const stats = useStats(MINUTES);
  if (queues.error && !queues.data) return <Trouble error={queues.error} again={() => void queues.refetch()} />;
  if (!queues.data || !workers.data) return <Panel><Skeleton lines={8} /></Panel>;
  const look = { ready: ready.data, queues: queues.data, workers: workers.data };
  const found = findings(look);
  return (
    <>
      <div className="page-head"><h1>Overview</h1></div>
      {queues.error ? <Trouble error={queues.error} /> : null}
      {queues.data.length === 0 ? (
        <FirstJob workers={workers.data.length} />
      ) : (
        <>
          <Health found={found} well={allIsWell(look)} />
          <Tiles queues={queues.data} workers={workers.data} stats={stats.data ?? []} />
          <div className="grid two">
            <Suspense fallback={<Panel title="Throughput"><Skeleton lines={6} /></Panel>}><Throughput stats={stats.data} minutes={MINUTES} /></Suspense>
            <LatestErrors />
          </div>
          <QueueTable queues={queues.data} stats={stats.data ?? []} />
        </>
      )}
    </>
  );
}

const MINUTES = 60;
// The chart comes after what an operator looks for first.
const Throughput = lazy(() => import("./throughput").then((its) => ({ default: its.Throughput })));
const ERRORS_SHOWN = 5;

function LatestErrors() {
  const errors = useErrors();
  const all = (errors.data?.pages ?? []).flatMap((page) => page.errors).toSorted((a, b) => (b.last_seen ?? "").localeCompare(a.last_seen ?? ""));
  return (
    <Panel title="Latest errors" note={all.length > ERRORS_SHOWN ? `${count(all.length)} kinds` : undefined} bare
      actions={all.length > 0 ? <Link to={to.errors} className="link">All</Link> : null}>
      {errors.error && !errors.data ? <div className="panel-body"><Trouble error={errors.error} /></div> : <ErrorTable errors={all.slice(0, ERRORS_SHOWN)} short />}
    </Panel>
  );
}

const SHOWN = 5;

function Health({ found, well }: { found: readonly Finding[]; well: string }) {
  if (found.length === 0) {
    return (
      <section className="health t-good" aria-label="Health">
        <div className="health-line"><Icon name="good" /><strong>All is well.</strong> <span>{well}</span></div>
      </section>
    );
  }
  const bad = found.some((finding) => finding.tone === "bad");
  return (
    <section className={`health ${bad ? "t-bad" : "t-warn"}`} aria-label="Health">
      <div className="health-line">
        <Icon name={bad ? "bad" : "warn"} />
        <strong>{found.length === 1 ? "One thing needs a look" : `${count(found.length)} things need a look`}</strong>
      </div>
      <ul className="findings">
        {found.slice(0, SHOWN).map((finding) => (
          <li key={finding.title + finding.detail}>
            <Link to={finding.where} className={`finding t-${finding.tone}`}>
              <Icon name={finding.tone === "bad" ? "bad" : "warn"} />
              <span className="finding-title">{finding.title}</span>
              <span className="finding-detail">{finding.detail}</span>
              <Icon name="right" className="go" />
            </Link>
          </li>
        ))}
      </ul>
      {found.length > SHOWN ? <p className="findings-more">and {count(found.length - SHOWN)} more, in the queues below</p> : null}
    </section>
  );
}

const total = (queues: readonly Queue[], state: string): number =>
  queues.reduce((sum, queue) => sum + (queue.counts[state] ?? 0), 0);

function Tiles({ queues, workers, stats }: { queues: readonly Queue[]; workers: readonly Worker[]; stats: readonly Statistics[] }) {
  const oldest = Math.max(0, ...queues.map((queue) => queue.head_age ?? 0));
  const slots = workers.reduce((sum, worker) => sum + worker.slots, 0);
  const all = total(queues, "queued");
  const its = summarize(stats);
  return (
    <div className="tiles">
      <Tile name="Waiting" state="queued" where={to.jobs({ state: "queued" })} value={compact(all)} title={count(all)}
        note={all === 0 ? "nothing in line" : `longest ${duration(oldest * 1000)}`} />
      <Tile name="Running" state="running" where={to.jobs({ state: "running" })} value={compact(total(queues, "running"))}
        note={workers.length === 0 ? "no worker" : `of ${compact(slots)} slots`} />
      <Tile name="In" value={short(its.inRate)} unit="/min" note="submitted" />
      <Tile name="Out" value={short(its.outRate)} unit="/min" note="ended" />
      <Tile name="Failed" state="failed" where={to.errors} value={its.failRate === null ? "–" : percent(its.failRate)}
        tone={(its.failRate ?? 0) >= 0.05 ? "t-bad" : ""} note={`${compact(its.failed)} in the last hour`} />
      <Tile name="Waited" value={its.wait === null ? "–" : brief(its.wait.p95)} note={latencyNote(its.wait, stats)} />
      <Tile name="Ran" value={its.run === null ? "–" : brief(its.run.p95)} note={latencyNote(its.run, stats)} />
    </div>
  );
}

const latencyNote = (its: unknown, stats: readonly Statistics[]): string =>
  its === null ? "no run yet" : stats.length === 1 ? "p95, last hour" : "p95, slowest queue";

export function Tile({ name, state, where, value, unit, note, tone = "", title }: {
  name: string; state?: string; where?: string; value: string; unit?: string; note?: string; tone?: string; title?: string;
}) {
  const inside = (
    <>
      <span className={`tile-name ${state ? `s-${state}` : ""}`}>
        {state ? <Icon name={state as "queued"} /> : null}
        {name}
      </span>
      <span className={`tile-value ${tone}`} title={title}>{value}{unit ? <small>{unit}</small> : null}</span>
      {note ? <span className="tile-note">{note}</span> : null}
    </>
  );
  return where ? <Link to={where} className="tile">{inside}</Link> : <div className="tile">{inside}</div>;
}

const COLUMNS = ["queued", "running", "retrying", "scheduled", "failed"] as const;

function QueueTable({ queues, stats }: { queues: readonly Queue[]; stats: readonly Statistics[] }) {
  const lines = new Map(stats.map((one) => [one.queue, summarize([one]).series]));
  return (
    <Panel title="Queues" note={count(queues.length)} bare>
      <div className="table-box">
        <table className="table queues-table">
          <thead>
            <tr>
              <th scope="col">Queue</th>
              <th scope="col">Last hour</th>
              <th scope="col" className="right">Waiting</th>
              <th scope="col" className="right">Longest wait</th>
              {COLUMNS.slice(1).map((state) => <th key={state} scope="col" className="right">{state[0]!.toUpperCase() + state.slice(1)}</th>)}
              <th scope="col" className="right">Workers</th>
            </tr>
          </thead>
          <tbody>
            {queues.map((queue) => (
              <tr key={queue.name} className="linked">
                <td>
                  <div className="row">
                    <Link to={to.queue(queue.name)} className="name break">{queue.name}</Link>
                    <QueueTags queue={queue} />
                  </div>
                </td>
                <td className="spark-cell"><Spark values={lines.get(queue.name)?.succeeded ?? []} label={`Succeeded jobs of ${queue.name} in the last hour`} /></td>
                <Number queue={queue} state="queued" />
                <td className="right nowrap">{queue.head_age === null ? <span className="zero">–</span> : duration(queue.head_age * 1000)}</td>
                {COLUMNS.slice(1).map((state) => <Number key={state} queue={queue} state={state} />)}
                <td className="right">{queue.workers === 0 ? <Tag tone={waiting(queue) > 0 ? "bad" : "plain"}>none</Tag> : queue.workers}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

export function QueueTags({ queue }: { queue: Queue }) {
  const lonely = queue.types.some((line) => !line.served);
  return (
    <>
      {queue.paused ? <Tag tone="warn" icon="pause">paused</Tag> : null}
      {queue.paused_types.length > 0 ? <Tag tone="warn" icon="pause">{queue.paused_types.length} of its types</Tag> : null}
      {lonely && !queue.paused ? <Tag tone="bad" icon="warn">not served</Tag> : null}
      {queue.quarantined > 0 ? <Tag tone="warn">{count(queue.quarantined)} set aside</Tag> : null}
    </>
  );
}

function Number({ queue, state }: { queue: Queue; state: string }) {
  const its = queue.counts[state] ?? 0;
  return (
    <td className="right">
      {its === 0 ? <span className="zero">0</span> : (
        <Link to={to.jobs({ queue: queue.name, state })} className={state === "failed" ? "count-bad" : "count"}>{count(its)}</Link>
      )}
    </td>
  );
}
