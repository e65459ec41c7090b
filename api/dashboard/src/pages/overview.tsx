import { Link } from "react-router";

import { useQueues, useReady, useWorkers } from "@/api/queries";
import type { Queue, Worker } from "@/api/types";
import { allIsWell, findings, waiting, type Finding } from "@/lib/findings";
import { compact, count, duration } from "@/lib/format";
import { to } from "@/lib/to";
import { useTitle } from "@/lib/title";
import { Icon } from "@/ui/icons";
import { Empty, Panel, Skeleton, Tag, Trouble } from "@/ui/parts";

import { FirstJob } from "./first-job";

export function Overview() {
  useTitle("Overview");
  const queues = useQueues();
  const workers = useWorkers();
  const ready = useReady();
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
          <Tiles queues={queues.data} workers={workers.data} />
          <QueueTable queues={queues.data} />
        </>
      )}
    </>
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

function Tiles({ queues, workers }: { queues: readonly Queue[]; workers: readonly Worker[] }) {
  const oldest = Math.max(0, ...queues.map((queue) => queue.head_age ?? 0));
  const slots = workers.reduce((sum, worker) => sum + worker.slots, 0);
  const busy = workers.reduce((sum, worker) => sum + worker.busy, 0);
  const failed = total(queues, "failed");
  const all = total(queues, "queued");
  return (
    <div className="tiles">
      <Tile name="Waiting" state="queued" where={to.jobs({ state: "queued" })} value={compact(all)} title={count(all)}
        note={all === 0 ? "nothing in line" : `longest ${duration(oldest * 1000)}`} />
      <Tile name="Running" state="running" where={to.jobs({ state: "running" })} value={compact(total(queues, "running"))}
        note={`${compact(busy)} of ${compact(slots)} slots`} />
      <Tile name="Retrying" state="retrying" where={to.jobs({ state: "retrying" })} value={compact(total(queues, "retrying"))} note="after a failure" />
      <Tile name="Scheduled" state="scheduled" where={to.jobs({ state: "scheduled" })} value={compact(total(queues, "scheduled"))} note="for later" />
      <Tile name="Failed" state="failed" where={to.jobs({ state: "failed" })} value={compact(failed)} tone={failed > 0 ? "t-bad" : ""} note="kept to look at" />
      <Tile name="Workers" where={to.workers} value={compact(workers.length)} tone={workers.length === 0 ? "t-bad" : ""}
        note={workers.length === 0 ? "none is running" : "at work"} />
    </div>
  );
}

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

function QueueTable({ queues }: { queues: readonly Queue[] }) {
  return (
    <Panel title="Queues" note={count(queues.length)} bare>
      <div className="table-box">
        <table className="table queues-table">
          <thead>
            <tr>
              <th scope="col">Queue</th>
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
                <Number queue={queue} state="queued" />
                <td className="right nowrap">{queue.head_age === null ? <span className="zero">–</span> : duration(queue.head_age * 1000)}</td>
                {COLUMNS.slice(1).map((state) => <Number key={state} queue={queue} state={state} />)}
                <td className="right">{queue.workers === 0 ? <Tag tone={waiting(queue) > 0 ? "bad" : "plain"}>none</Tag> : queue.workers}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {queues.length === 0 ? <Empty title="No queue yet" small /> : null}
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
