import { DropdownMenu as Menu } from "radix-ui";
import { useState } from "react";
import { Link, useSearchParams } from "react-router";

import { path, send } from "@/api/client";
import { useMay } from "@/api/may";
import { useWorkers } from "@/api/queries";
import type { Worker } from "@/api/types";
import { useAct } from "@/lib/actions";
import { bytes, count, many } from "@/lib/format";
import { useNow } from "@/lib/now";
import { useTitle } from "@/lib/title";
import { to } from "@/lib/to";
import { IconButton } from "@/ui/button";
import { Confirm } from "@/ui/confirm";
import { Icon } from "@/ui/icons";
import { Ago, CopyButton, Empty, Meter, Panel, Skeleton, Tag, Trouble } from "@/ui/parts";

export function Workers() {
  useTitle("Workers");
  const workers = useWorkers();
  const [params, setParams] = useSearchParams();
  const text = params.get("q") ?? "";
  if (!workers.data) return workers.error ? <Trouble error={workers.error} again={() => void workers.refetch()} /> : <Panel><Skeleton lines={6} /></Panel>;
  const all = workers.data;
  const fits = (worker: Worker) => [worker.id, worker.host, ...worker.queues, ...worker.job_types].some((word) => word.toLowerCase().includes(text.toLowerCase()));
  const shown = all.filter(fits);
  const slots = all.reduce((sum, worker) => sum + worker.slots, 0);
  const busy = all.reduce((sum, worker) => sum + worker.busy, 0);
  return (
    <>
      <div className="page-head">
        <h1>Workers</h1>
        <span className="muted num">{many(all.length, "process", "processes")} on {many(new Set(all.map((worker) => worker.host)).size, "host")}, {count(busy)} of {count(slots)} slots busy</span>
      </div>
      {workers.error ? <Trouble error={workers.error} /> : null}
      {all.length === 0 ? (
        <Panel>
          <Empty icon="workers" title="No worker is running">
            <p>Jobs wait until one is. On any machine that reaches the same Redis:</p>
            <p><code>taskq worker -A yourapp.jobs:app</code></p>
          </Empty>
        </Panel>
      ) : (
        <>
          {all.length > 6 ? (
            <div className="field filter"><input className="input" type="search" aria-label="Find workers" placeholder="Find by host, id, queue or job type" value={text}
              onChange={(event) => setParams(event.target.value ? { q: event.target.value } : {}, { replace: true })} /></div>
          ) : null}
          <Panel bare>
            <div className="table-box">
              <table className="table">
                <thead><tr><th>Worker</th><th>State</th><th>Slots</th><th>Queues</th><th>Job types</th><th className="right">Memory</th><th className="right">Started</th><th className="right">Last sign of life</th><th><span className="hidden-text">Actions</span></th></tr></thead>
                <tbody>{shown.map((worker) => <Row key={worker.id} worker={worker} siblings={all.filter((its) => its.supervisor_pid === worker.supervisor_pid && its.host === worker.host).length} />)}</tbody>
              </table>
            </div>
            {shown.length === 0 ? <Empty title="No worker fits" small /> : null}
          </Panel>
        </>
      )}
    </>
  );
}

/** A sign of life comes every few seconds; one that is older than this is worth a colour (ms). */
const LATE = 12_000;

function Row({ worker, siblings }: { worker: Worker; siblings: number }) {
  const now = useNow();
  const operate = useMay()("operate");
  const late = worker.seen_at !== null && now - Date.parse(worker.seen_at) > LATE;
  return (
    <tr>
      <td>
        <div className="row"><code className="nowrap">{worker.id}</code><CopyButton text={worker.id} label="Copy the id" /></div>
        <Where worker={worker} />
      </td>
      <td><Tag tone={worker.state === "running" ? "good" : "warn"} icon={worker.state === "running" ? "good" : "pause"}>{worker.state || "unknown"}</Tag></td>
      <td className="slots"><Meter share={worker.busy / worker.slots} label={`Busy slots of ${worker.id}`} state="running" /><span className="muted nowrap">{count(worker.busy)} of {count(worker.slots)}</span></td>
      <td><Words words={worker.queues} link={to.queue} /></td>
      <td><Words words={worker.job_types} link={to.type} /></td>
      <td className="right muted nowrap">{worker.memory_bytes === null ? "–" : bytes(worker.memory_bytes)}</td>
      <td className="right muted"><Ago at={worker.started_at} /></td>
      <td className="right">{late ? <Tag tone="warn"><Ago at={worker.seen_at} /></Tag> : <span className="muted"><Ago at={worker.seen_at} /></span>}
        {worker.lease_expires_at === null ? null : (
          <div className="faint small-text nowrap" title="Its jobs go to others if there is no sign of life until then">lease ends <Ago at={worker.lease_expires_at} /></div>
        )}
      </td>
      <td className="right">{worker.kind === "http" || !operate ? null : <Actions worker={worker} siblings={siblings} />}</td>
    </tr>
  );
}

/** What it is, where it runs. One over HTTP has no process that we know of. */
function Where({ worker }: { worker: Worker }) {
  const where = worker.pid === null ? worker.host : `${worker.host}, pid ${worker.pid}`;
  const title = worker.supervisor_pid === null ? undefined : `supervisor ${worker.supervisor_pid}`;
  const version = worker.version === "" ? "" : `taskq ${worker.version}`;
  return <div className="faint small-text nowrap" title={title}>{[worker.label, where, version].filter(Boolean).join(" · ")}{worker.kind === "http" ? <> <Tag>over HTTP</Tag></> : null}</div>;
}

const SHOWN = 4;

function Words({ words, link }: { words: readonly string[]; link: (word: string) => string }) {
  return (
    <span className="words" title={words.join(", ")}>
      {words.slice(0, SHOWN).map((word) => <Link key={word} to={link(word)} className="tag">{word}</Link>)}
      {words.length > SHOWN ? <span className="faint nowrap">and {words.length - SHOWN}</span> : null}
    </span>
  );
}

function Actions({ worker, siblings }: { worker: Worker; siblings: number }) {
  const [asking, setAsking] = useState<"quiet" | "stop" | null>(null);
  const { attempt } = useAct();
  const all = siblings > 1 ? ` It concerns all ${siblings} processes of this taskq worker.` : "";
  const tell = (wish: "quiet" | "stop", done: string) => () => attempt(() => send("POST", path`/workers/${worker.id}/${wish}`), done);
  return (
    <>
      <Menu.Root modal={false}>
        <Menu.Trigger asChild><IconButton label={`Actions for ${worker.id}`} icon="more" small /></Menu.Trigger>
        <Menu.Portal>
          <Menu.Content className="menu" align="end" sideOffset={4} collisionPadding={8}>
            <Menu.Item className="menu-item" disabled={worker.state !== "running"} onSelect={() => setAsking("quiet")}><Icon name="pause" /> Quiet: claim nothing more</Menu.Item>
            <Menu.Item className="menu-item danger" onSelect={() => setAsking("stop")}><Icon name="stop" /> Stop</Menu.Item>
          </Menu.Content>
        </Menu.Portal>
      </Menu.Root>
      <Confirm open={asking === "quiet"} onClose={() => setAsking(null)} title="Quiet this worker?" action="Quiet it" run={tell("quiet", "It claims nothing more")}>
        <p>It finishes what it has and claims nothing more, until it ends.{all}</p>
      </Confirm>
      <Confirm open={asking === "stop"} onClose={() => setAsking(null)} title="Stop this worker?" action="Stop it" danger run={tell("stop", "It was asked to stop")}>
        <p>It claims nothing more, finishes what it can within its grace and hands the rest back: no work is lost. Whatever started it may start another.{all}</p>
      </Confirm>
    </>
  );
}
